// Package memory is a registry whose content callers set: for tests, and for programs that
// embed Portolan and know their services themselves.
//
// Every call changes the set of one host and namespace and posts that whole set
// to the worker, where the row is written:
//
//	AddService, SetEndpoints, RemoveService -> Worker.Post -> Publisher.Publish
//
// Its workload instances make no rows; it calls the workload handlers for them.
//
//	SetWorkload, RemoveWorkload -> Worker.Post -> the workload handlers
package memory

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/host"
)

// Options configure a Registry. XDS and Worker are required.
type Options struct {
	// Cluster distinguishes this registry from other memory registries, and must be unique
	// among them.
	Cluster string
	// XDS receives the rows.
	XDS discovery.XDSUpdater
	// Worker runs the writes of rows.
	Worker *cache.Worker
}

// Registry is a discovery.Instance of provider Memory. Any goroutine may call its methods.
// Changes are asynchronous: queries and the XDSUpdater see a change once the worker has run
// it. If the content of a host is set twice before the worker runs, only the last may be
// written. The worker publishes the rows of a service before it calls the service handlers.
type Registry struct {
	discovery.Published // the publisher, for reading

	worker    *cache.Worker
	publisher *discovery.Publisher
	synced    atomic.Bool

	mu   sync.Mutex // guards sets, and keeps posts in the order of the changes
	sets map[key]*set

	workloads map[workloadKey]*discovery.WorkloadInstance // as the handlers know them; only the worker uses it
}

var _ discovery.Instance = (*Registry)(nil)

type key struct {
	hostname  host.Name
	namespace string
}

type workloadKey struct{ namespace, name string }

// source is the key of posts to the worker; the zero key stands for the whole registry.
type source struct {
	registry *Registry
	key      key
	workload workloadKey
}

// set is all content of a host and namespace. Its slices are replaced, never modified.
type set struct {
	services  []*discovery.Service
	endpoints []*discovery.Endpoint
}

// New returns an empty registry.
func New(o Options) *Registry {
	publisher := discovery.NewPublisher(discovery.ShardKey{Provider: discovery.Memory, Cluster: o.Cluster}, o.XDS)
	return &Registry{
		Published: publisher, publisher: publisher, worker: o.Worker, sets: map[key]*set{},
		workloads: map[workloadKey]*discovery.WorkloadInstance{},
	}
}

// AddService adds a service, or replaces the one of the same host, namespace,
// object name and address. The registry keeps a copy, whose provider is Memory.
func (r *Registry) AddService(s *discovery.Service) {
	own := *s
	own.Attributes.Provider = discovery.Memory
	r.change(key{own.Hostname, own.Attributes.Namespace}, func(to *set) {
		to.services = slices.DeleteFunc(slices.Clone(to.services), func(o *discovery.Service) bool {
			return o.Address == own.Address && o.Attributes.Name == own.Attributes.Name
		})
		to.services = append(to.services, &own)
	})
}

// RemoveService removes all services of a host and namespace, and their
// endpoints.
func (r *Registry) RemoveService(hostname host.Name, namespace string) {
	r.change(key{hostname, namespace}, func(to *set) { *to = set{} })
}

// SetEndpoints sets all endpoints of a host and namespace. If the host has no service yet,
// they wait for one. The endpoints must not be modified afterwards.
func (r *Registry) SetEndpoints(hostname host.Name, namespace string, endpoints ...*discovery.Endpoint) {
	endpoints = slices.Clone(endpoints)
	r.change(key{hostname, namespace}, func(to *set) { to.endpoints = endpoints })
}

// change replaces the set of a key and posts it.
func (r *Registry) change(k key, f func(*set)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	next := &set{}
	if old := r.sets[k]; old != nil {
		*next = *old
	}
	f(next)
	if r.sets[k] = next; len(next.services) == 0 && len(next.endpoints) == 0 {
		delete(r.sets, k)
	}
	r.worker.Post(source{registry: r, key: k}, func() { r.write(k, next) })
}

// write runs on the worker.
func (r *Registry) write(k key, s *set) {
	r.publisher.Publish(discovery.Row{
		Hostname: k.hostname, Namespace: k.namespace,
		Services: slices.Clone(s.services), Endpoints: s.endpoints,
	})
}

// SetWorkload adds a workload instance, or replaces the one of the same namespace
// and name. The registry keeps a copy, whose provider is Memory and whose
// endpoint is in the registry's cluster.
func (r *Registry) SetWorkload(w *discovery.WorkloadInstance) {
	own := *w
	own.Provider, own.Endpoint.Locality.Cluster = discovery.Memory, r.Cluster()
	r.postWorkload(workloadKey{own.Namespace, own.Name}, &own)
}

// RemoveWorkload removes a workload instance.
func (r *Registry) RemoveWorkload(namespace, name string) {
	r.postWorkload(workloadKey{namespace, name}, nil)
}

func (r *Registry) postWorkload(k workloadKey, curr *discovery.WorkloadInstance) {
	r.worker.Post(source{registry: r, workload: k}, func() { r.setWorkload(k, curr) })
}

// setWorkload runs on the worker.
func (r *Registry) setWorkload(k workloadKey, curr *discovery.WorkloadInstance) {
	old := r.workloads[k]
	switch {
	case old.Equal(curr):
	case curr == nil:
		delete(r.workloads, k)
		r.publisher.WorkloadChanged(old, cache.EventDelete)
	case old == nil:
		r.workloads[k] = curr
		r.publisher.WorkloadChanged(curr, cache.EventAdd)
	default:
		r.workloads[k] = curr
		r.publisher.WorkloadChanged(curr, cache.EventUpdate)
	}
}

// Run reports the registry as synced once the worker has written all content set before, and
// waits until ctx ends.
func (r *Registry) Run(ctx context.Context) error {
	r.publisher.Close()
	r.worker.Post(source{registry: r}, func() {
		r.worker.Then(func() { r.synced.Store(true) })
	})
	<-ctx.Done()
	return nil
}

// HasSynced returns true once everything that was set before Run is committed.
func (r *Registry) HasSynced() bool { return r.synced.Load() }
