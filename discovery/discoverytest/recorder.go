// Package discoverytest has the double that the tests of registries share: an XDSUpdater that
// keeps the rows it is given and records the calls.
package discoverytest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/host"
)

// Recorder is a discovery.XDSUpdater for tests. The zero Recorder is ready. Any goroutine may
// read it.
type Recorder struct {
	mu    sync.Mutex // guards the fields below
	calls []string
	rows  map[string]discovery.Row
	// redundant holds the calls that handed over a row equal to the one before.
	redundant []string
}

var _ discovery.XDSUpdater = (*Recorder)(nil)

// SvcUpdate implements discovery.XDSUpdater.
func (r *Recorder) SvcUpdate(_ discovery.ShardKey, hostname host.Name, namespace string, services []*discovery.Service) {
	r.update("services", hostname, namespace, len(services), func(row *discovery.Row) (same bool) {
		same = slices.EqualFunc(row.Services, services, (*discovery.Service).Equal)
		if row.Services = services; len(services) == 0 {
			row.Endpoints = nil
		}
		return same
	})
}

// EDSUpdate implements discovery.XDSUpdater.
func (r *Recorder) EDSUpdate(_ discovery.ShardKey, hostname host.Name, namespace string, endpoints []*discovery.Endpoint) {
	r.update("endpoints", hostname, namespace, len(endpoints), setEndpoints(endpoints))
}

// EDSCacheUpdate implements discovery.XDSUpdater.
func (r *Recorder) EDSCacheUpdate(_ discovery.ShardKey, hostname host.Name, namespace string, endpoints []*discovery.Endpoint) {
	r.update("endpoints (silent)", hostname, namespace, len(endpoints), setEndpoints(endpoints))
}

func setEndpoints(endpoints []*discovery.Endpoint) func(*discovery.Row) bool {
	return func(row *discovery.Row) (same bool) {
		same = slices.EqualFunc(row.Endpoints, endpoints, (*discovery.Endpoint).Equal)
		row.Endpoints = endpoints
		return same
	}
}

// ConfigUpdate implements discovery.XDSUpdater.
func (r *Recorder) ConfigUpdate(request *discovery.PushRequest) {
	var reasons []string
	for _, reason := range slices.Sorted(maps.Keys(request.Reason)) {
		reasons = append(reasons, fmt.Sprintf("%s=%d", reason, request.Reason[reason]))
	}
	r.record("wake " + strings.Join(reasons, " "))
}

// ProxyUpdate implements discovery.XDSUpdater.
func (r *Recorder) ProxyUpdate(cluster, ip string) { r.record("proxy " + cluster + "/" + ip) }

func (r *Recorder) update(what string, hostname host.Name, namespace string, n int, change func(*discovery.Row) (same bool)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := namespace + "/" + string(hostname)
	call := fmt.Sprintf("%s %s %d", what, key, n)
	r.calls = append(r.calls, call)
	row, ok := r.rows[key]
	if !ok {
		row = discovery.Row{Hostname: hostname, Namespace: namespace}
	}
	if change(&row) {
		r.redundant = append(r.redundant, call)
	}
	if r.rows == nil {
		r.rows = map[string]discovery.Row{}
	}
	if r.rows[key] = row; len(row.Services) == 0 && len(row.Endpoints) == 0 {
		delete(r.rows, key)
	}
}

func (r *Recorder) record(call string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, call)
}

// Take returns the calls since the last Take, one line each and in order:
//
//	services <namespace>/<host> <number>
//	endpoints <namespace>/<host> <number>
//	endpoints (silent) <namespace>/<host> <number>
//	wake <reason>=<count> ...
//	proxy <cluster>/<ip>
func (r *Recorder) Take() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	calls := r.calls
	r.calls = nil
	return calls
}

// Redundant returns the calls so far that handed over a row equal to the one
// there was.
func (r *Recorder) Redundant() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.redundant)
}

// Rows returns the rows there are now, by "namespace/host".
func (r *Recorder) Rows() map[string]discovery.Row {
	r.mu.Lock()
	defer r.mu.Unlock()
	rows := make(map[string]discovery.Row, len(r.rows))
	maps.Copy(rows, r.rows)
	return rows
}

// Endpoints returns the endpoints of a row, each as "port name=address:port".
func (r *Recorder) Endpoints(namespace, hostname string) []string {
	var out []string
	for _, e := range r.Rows()[namespace+"/"+hostname].Endpoints {
		text := fmt.Sprintf("%s=%s:%d", e.ServicePortName, e.Address, e.Port)
		if e.Health == discovery.OutOfUse {
			text += " out of use"
		}
		out = append(out, text)
	}
	return out
}
