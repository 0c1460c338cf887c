package discovery

import (
	"iter"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/portolan-mesh/portolan/storage/host"
	"github.com/portolan-mesh/portolan/storage/labels"
	"github.com/portolan-mesh/portolan/storage/pmap"
)

// Index holds the rows of one registry. The registry uses it to answer the queries of
// ServiceDiscovery, and to find what a new row changes. Any goroutine may read it, without a
// lock; only the worker writes. The zero Index is empty.
type Index struct {
	current atomic.Pointer[State]
}

// State is one immutable state of an Index.
type State struct {
	// rows holds the rows by rowKey, "host/namespace".
	rows pmap.Map[*indexRow]
	// byIP has a key "ip/host/namespace" for each address in each row.
	byIP pmap.Map[struct{}]
}

// NewIndex returns an index with an initial state.
func NewIndex(s *State) *Index {
	x := &Index{}
	x.current.Store(s)
	return x
}

// State returns the current state of the index.
func (x *Index) State() *State {
	if s := x.current.Load(); s != nil {
		return s
	}
	return &State{}
}

// Row returns the row of a host and namespace, empty if there is none. The caller must not
// modify it.
func (x *Index) Row(hostname host.Name, namespace string) Row {
	return x.State().Row(hostname, namespace)
}

// Services implements ServiceDiscovery.
func (x *Index) Services() []*Service { return x.State().Services() }

// GetService implements ServiceDiscovery.
func (x *Index) GetService(hostname host.Name) *Service { return x.State().GetService(hostname) }

// InstancesByPort implements ServiceDiscovery.
func (x *Index) InstancesByPort(service *Service, port int, selector labels.Instance) []*ServiceInstance {
	return x.State().InstancesByPort(service, port, selector)
}

// GetProxyServiceInstances implements ServiceDiscovery.
func (x *Index) GetProxyServiceInstances(proxy *Proxy) []*ServiceInstance {
	return x.State().GetProxyServiceInstances(proxy)
}

// GetProxyWorkloadLabels implements ServiceDiscovery.
func (x *Index) GetProxyWorkloadLabels(proxy *Proxy) labels.Instance {
	return x.State().GetProxyWorkloadLabels(proxy)
}

type indexRow struct {
	Row
	byIP map[string][]*Endpoint
}

// Row holds everything that one registry knows under a host and namespace: one service
// per address, and the endpoints that these share. A row without services has no
// endpoints.
type Row struct {
	Hostname  host.Name
	Namespace string
	Services  []*Service  // in CompareServices order
	Endpoints []*Endpoint // in the order in which the registry gave them
}

func rowKey(hostname host.Name, namespace string) string { return string(hostname) + "/" + namespace }

// Row returns the row of a host and namespace, empty if there is none. The caller must not
// modify it.
func (s *State) Row(hostname host.Name, namespace string) Row {
	if row := s.rows.Value(rowKey(hostname, namespace)); row != nil {
		return row.Row
	}
	return Row{Hostname: hostname, Namespace: namespace}
}

// Services returns all services, in CompareServices order.
func (s *State) Services() []*Service {
	var out []*Service
	for row := range s.rows.Values() {
		out = append(out, row.Services...)
	}
	slices.SortFunc(out, CompareServices)
	return out
}

// GetService returns the first service of a host, in CompareServices order over
// all namespaces; nil where there is none.
func (s *State) GetService(hostname host.Name) *Service {
	var first *Service
	for _, row := range s.rows.Prefix(rowKey(hostname, "")) {
		if first == nil || CompareServices(row.Services[0], first) < 0 {
			first = row.Services[0]
		}
	}
	return first
}

// InstancesByPort returns the instances of a service port whose labels are a superset of the
// selector; without a selector, all of them.
func (s *State) InstancesByPort(service *Service, port int, selector labels.Instance) []*ServiceInstance {
	servicePort, ok := service.Port(port)
	if !ok {
		return nil
	}
	var out []*ServiceInstance
	for _, e := range InUse(s.Row(service.Hostname, service.Attributes.Namespace).Endpoints) {
		if e.IsFor(servicePort) && selector.SubsetOf(e.Labels) {
			out = append(out, &ServiceInstance{Service: service, ServicePort: servicePort, Endpoint: e})
		}
	}
	return out
}

// GetProxyServiceInstances returns one instance for each port of each service that has
// an endpoint at an address of the proxy, always in the same order. The services are in
// the proxy's namespace, or in any if the proxy has none. If the proxy has proved an
// identity, endpoints of other identities do not count.
func (s *State) GetProxyServiceInstances(proxy *Proxy) []*ServiceInstance {
	var out []*ServiceInstance
	type seenPort struct {
		key  string // of the service
		port int
	}
	seen := map[seenPort]bool{}
	for _, ip := range proxy.IPAddresses {
		for key, row := range s.at(ip) {
			if proxy.Namespace != "" && row.Namespace != proxy.Namespace {
				continue
			}
			for _, e := range row.byIP[canonicalIP(ip)] {
				instance := row.instance(e)
				if instance == nil {
					continue
				}
				if port := (seenPort{key, instance.ServicePort.Number}); !seen[port] && proxy.Serves(e) {
					seen[port] = true
					out = append(out, instance)
				}
			}
		}
	}
	return out
}

// GetProxyWorkloadLabels returns the labels of the workload at an address of the proxy, as
// Proxy.WorkloadLabels picks it, nil if there is none. The choice is deterministic.
func (s *State) GetProxyWorkloadLabels(proxy *Proxy) labels.Instance {
	return proxy.WorkloadLabels(func(ip string) iter.Seq2[string, []*Endpoint] {
		return func(yield func(string, []*Endpoint) bool) {
			for _, row := range s.at(ip) {
				if !yield(row.Namespace, row.byIP[canonicalIP(ip)]) {
					return
				}
			}
		}
	})
}

// at iterates over the rows that have an endpoint at an address, by key.
func (s *State) at(ip string) iter.Seq2[string, *indexRow] {
	prefix := canonicalIP(ip) + "/"
	return func(yield func(string, *indexRow) bool) {
		for key := range s.byIP.Prefix(prefix) {
			key = strings.TrimPrefix(key, prefix)
			if !yield(key, s.rows.Value(key)) {
				return
			}
		}
	}
}

// instance returns the endpoint as an instance of the first service with its port, nil if no
// service has it.
func (r *indexRow) instance(e *Endpoint) *ServiceInstance {
	for _, s := range r.Services {
		for _, p := range s.Ports {
			if e.IsFor(p) {
				return &ServiceInstance{Service: s, ServicePort: p, Endpoint: e}
			}
		}
	}
	return nil
}

// set removes a row without services.
func (x *Index) set(row Row) {
	s := x.State()
	key := rowKey(row.Hostname, row.Namespace)
	old, next := s.rows.Value(key), (*indexRow)(nil)
	rows := s.rows.Delete(key)
	if len(row.Services) > 0 {
		next = &indexRow{Row: row, byIP: groupByIP(row.Endpoints)}
		rows = s.rows.Set(key, next)
	}
	byIP := s.byIP
	for ip := range old.addresses() {
		if _, stays := next.addresses()[ip]; !stays {
			byIP = byIP.Delete(ip + "/" + key)
		}
	}
	for ip := range next.addresses() {
		byIP = byIP.Set(ip+"/"+key, struct{}{})
	}
	x.current.Store(&State{rows: rows, byIP: byIP})
}

func (r *indexRow) addresses() map[string][]*Endpoint {
	if r == nil {
		return nil
	}
	return r.byIP
}

// groupByIP leaves out addresses that are no IP, since no proxy is there.
func groupByIP(endpoints []*Endpoint) map[string][]*Endpoint {
	out := map[string][]*Endpoint{}
	for _, e := range endpoints {
		if ip := canonicalIP(e.Address); ip != "" {
			out[ip] = append(out[ip], e)
		}
	}
	return out
}

// canonicalIP returns the one spelling of an address, and "" for other text.
func canonicalIP(s string) string {
	ip, err := netip.ParseAddr(s)
	if err != nil {
		return ""
	}
	return ip.Unmap().String()
}
