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

// Index is what one registry knows, kept so that it can answer the queries of
// ServiceDiscovery and tell what a new row changes. Readers may use it from any
// goroutine and never lock; there is one writer, the worker. The zero Index is
// empty.
type Index struct {
	current atomic.Pointer[tables]
}

// tables is one state of an Index. It is never modified.
type tables struct {
	// rows are by rowKey, "host/namespace".
	rows pmap.Map[*indexRow]
	// byIP has a key "ip/host/namespace" for every address of every row.
	byIP pmap.Map[struct{}]
}

// indexRow is a row, with its endpoints by address.
type indexRow struct {
	Row
	byIP map[string][]*Endpoint
}

// Row is all that one registry knows under a host and namespace: one service
// per address, and the endpoints that these share. A row without services has
// no endpoints either.
type Row struct {
	Hostname  host.Name
	Namespace string
	Services  []*Service  // in CompareServices order
	Endpoints []*Endpoint // in the order in which they are handed over
}

func rowKey(hostname host.Name, namespace string) string { return string(hostname) + "/" + namespace }

func (x *Index) load() *tables {
	if t := x.current.Load(); t != nil {
		return t
	}
	return &tables{}
}

// Row returns the row of a host and namespace, empty where there is none. The
// caller must not modify it.
func (x *Index) Row(hostname host.Name, namespace string) Row {
	if row := x.load().rows.Value(rowKey(hostname, namespace)); row != nil {
		return row.Row
	}
	return Row{Hostname: hostname, Namespace: namespace}
}

// Services returns all services, in CompareServices order.
func (x *Index) Services() []*Service {
	var out []*Service
	for row := range x.load().rows.Values() {
		out = append(out, row.Services...)
	}
	slices.SortFunc(out, CompareServices)
	return out
}

// GetService returns the first service of a host, in CompareServices order over
// all namespaces; nil where there is none.
func (x *Index) GetService(hostname host.Name) *Service {
	var first *Service
	for _, row := range x.load().rows.Prefix(rowKey(hostname, "")) {
		if first == nil || CompareServices(row.Services[0], first) < 0 {
			first = row.Services[0]
		}
	}
	return first
}

// InstancesByPort returns the instances of a service port whose labels are a
// superset of the given ones; all for no labels.
func (x *Index) InstancesByPort(service *Service, port int, selector labels.Instance) []*ServiceInstance {
	servicePort, ok := service.Port(port)
	if !ok {
		return nil
	}
	var out []*ServiceInstance
	for _, e := range x.Row(service.Hostname, service.Attributes.Namespace).Endpoints {
		if e.ServicePortName == servicePort.Name && selector.SubsetOf(e.Labels) {
			out = append(out, &ServiceInstance{Service: service, ServicePort: servicePort, Endpoint: e})
		}
	}
	return out
}

// GetProxyServiceInstances returns one instance for each port of each service of
// the proxy's namespace that has an endpoint at an address of the proxy, always
// in the same order. A proxy without a namespace has those of all; one that
// proved an identity has none of endpoints that are another's.
func (x *Index) GetProxyServiceInstances(proxy *Proxy) []*ServiceInstance {
	t := x.load()
	var out []*ServiceInstance
	seen := map[string]bool{} // host/namespace/port name
	for _, ip := range proxy.IPAddresses {
		for key, row := range t.at(ip) {
			if proxy.Namespace != "" && row.Namespace != proxy.Namespace {
				continue
			}
			for _, e := range row.byIP[canonicalIP(ip)] {
				port := key + "/" + e.ServicePortName
				if instance := row.instance(e); instance != nil && !seen[port] && proxy.Serves(e) {
					seen[port] = true
					out = append(out, instance)
				}
			}
		}
	}
	return out
}

// GetProxyWorkloadLabels returns the labels of the workload at an address of the
// proxy, as Proxy.WorkloadLabels picks them; nil where there is none. It is
// always the same one.
func (x *Index) GetProxyWorkloadLabels(proxy *Proxy) labels.Instance {
	t := x.load()
	return proxy.WorkloadLabels(func(ip string) iter.Seq2[string, []*Endpoint] {
		return func(yield func(string, []*Endpoint) bool) {
			for _, row := range t.at(ip) {
				if !yield(row.Namespace, row.byIP[canonicalIP(ip)]) {
					return
				}
			}
		}
	})
}

// at iterates over the rows that have an endpoint at an address, by key.
func (t *tables) at(ip string) iter.Seq2[string, *indexRow] {
	prefix := canonicalIP(ip) + "/"
	return func(yield func(string, *indexRow) bool) {
		for key := range t.byIP.Prefix(prefix) {
			key = strings.TrimPrefix(key, prefix)
			if !yield(key, t.rows.Value(key)) {
				return
			}
		}
	}
}

// instance makes an endpoint an instance of the first service that has its
// port, nil where none has.
func (r *indexRow) instance(e *Endpoint) *ServiceInstance {
	for _, s := range r.Services {
		for _, p := range s.Ports {
			if p.Name == e.ServicePortName {
				return &ServiceInstance{Service: s, ServicePort: p, Endpoint: e}
			}
		}
	}
	return nil
}

// set replaces a row; one without services is removed.
func (x *Index) set(row Row) {
	t := x.load()
	key := rowKey(row.Hostname, row.Namespace)
	old, next := t.rows.Value(key), (*indexRow)(nil)
	rows := t.rows.Delete(key)
	if len(row.Services) > 0 {
		next = &indexRow{Row: row, byIP: groupByIP(row.Endpoints)}
		rows = t.rows.Set(key, next)
	}
	byIP := t.byIP
	for ip := range old.addresses() {
		if _, stays := next.addresses()[ip]; !stays {
			byIP = byIP.Delete(ip + "/" + key)
		}
	}
	for ip := range next.addresses() {
		byIP = byIP.Set(ip+"/"+key, struct{}{})
	}
	x.current.Store(&tables{rows: rows, byIP: byIP})
}

func (r *indexRow) addresses() map[string][]*Endpoint {
	if r == nil {
		return nil
	}
	return r.byIP
}

// groupByIP leaves out endpoints that are no IP address: no proxy is there.
func groupByIP(endpoints []*Endpoint) map[string][]*Endpoint {
	out := map[string][]*Endpoint{}
	for _, e := range endpoints {
		if ip := canonicalIP(e.Address); ip != "" {
			out[ip] = append(out[ip], e)
		}
	}
	return out
}

// canonicalIP is the one spelling of an address, empty for what is none.
func canonicalIP(s string) string {
	ip, err := netip.ParseAddr(s)
	if err != nil {
		return ""
	}
	return ip.Unmap().String()
}
