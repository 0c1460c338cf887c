package explain

import (
	"cmp"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/host"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/xds/generate"
	"github.com/portolan-mesh/portolan/xds/generate/workload"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/mesh/policy"
	"github.com/portolan-mesh/portolan/xds/names"
	"github.com/portolan-mesh/portolan/xds/resource"
	"github.com/portolan-mesh/portolan/xds/simulate"
)

// The bounds of what is foreseen.
const (
	maxForeseenWorkloads = 100
	maxForeseenCalls     = 2000
	maxForeseenRequests  = 20 // for one service
)

// Foreseen says whom changed AuthorizationPolicies are for, and which calls they would newly refuse.
type Foreseen struct {
	// Selected are the node ids of the connected workloads that each policy selects, in order; those
	// that it selected if it would be deleted.
	Selected map[config.Key][]string
	// Calls counts the calls that were looked at. More says that there are more.
	Calls int
	More  bool
	// Refused are those that policies would refuse and do not now, such as
	// "web.shop to db.shop:5432 at vm-2.shop", in order.
	Refused []string
}

// Foresee finds out what a change of AuthorizationPolicies does. nodes are the connected proxies. A
// call is foreseen from a proxy to a service on a port if the proxy sees the service or, of a
// gateway, routes to it; and for HTTP, with GET / and with what VirtualServices for the service match.
func Foresee(is, would *mesh.PushContext, types []generate.ResourceType, nodes []*discovery.Proxy, changed []config.Key) Foreseen {
	f := &foresight{is: is, would: would, types: types, nodes: nodes, now: time.Now(), nows: map[string]*receiver{}, thens: map[string]*receiver{}}
	out := Foreseen{Selected: map[config.Key][]string{}}
	var concerned []*discovery.Proxy
	for _, p := range nodes {
		for _, key := range changed {
			before, after := selects(is, key, p), selects(would, key, p)
			if after || before && would.Inputs().Configs.Get(key) == nil {
				out.Selected[key] = append(out.Selected[key], p.ID)
			}
			if (before || after) && !slices.Contains(concerned, p) && p.Type == discovery.Sidecar {
				concerned = append(concerned, p)
			}
		}
	}
	for _, ids := range out.Selected {
		slices.Sort(ids)
	}
	slices.SortFunc(concerned, func(a, b *discovery.Proxy) int { return strings.Compare(a.ID, b.ID) })
	if f.more = len(concerned) > maxForeseenWorkloads; f.more {
		concerned = concerned[:maxForeseenWorkloads]
	}
	f.run(concerned)
	slices.Sort(f.refused)
	out.Calls, out.More, out.Refused = f.calls, f.more, f.refused
	return out
}

// selects reports whether a policy is there and for a workload.
func selects(push *mesh.PushContext, key config.Key, p *discovery.Proxy) bool {
	object := push.Inputs().Configs.Get(key)
	return object != nil && push.IsFor(policy.NewPolicy(object), p)
}

// foresight compares two meshes call by call.
type foresight struct {
	is, would *mesh.PushContext
	types     []generate.ResourceType
	nodes     []*discovery.Proxy
	now       time.Time
	// nows and thens are the inbound sides that are built so far in the two meshes.
	nows, thens map[string]*receiver
	requests    map[host.Name][]call // of HTTP, by service; nil until read
	calls       int
	more        bool
	refused     []string
}

// call is a request of HTTP.
type call struct{ method, path string }

// client is a proxy that may call, in both meshes.
type client struct {
	now, then *explainer
	routed    map[string]bool // the clusters that a gateway routes to, nil for others
}

func (f *foresight) clients() []client {
	var out []client
	for _, p := range f.nodes {
		c := client{now: f.explainer(f.is, p, f.nows), then: f.explainer(f.would, p, f.thens)}
		switch p.Type {
		case discovery.Router:
			c.routed = c.then.routedClusters()
		case discovery.Sidecar, discovery.Proxyless:
		default:
			continue
		}
		out = append(out, c)
	}
	slices.SortFunc(out, func(a, b client) int { return strings.Compare(a.now.proxy.ID, b.now.proxy.ID) })
	return out
}

func (f *foresight) explainer(push *mesh.PushContext, p *discovery.Proxy, receivers map[string]*receiver) *explainer {
	return &explainer{
		push: push, proxy: p, types: f.types, nodes: f.nodes, connected: true, receivers: receivers,
		builder: generate.NewBuilder(push, p, generate.For(f.types, p.Type)),
	}
}

// routedClusters returns the clusters that the listeners and routes of a gateway need.
func (e *explainer) routedClusters() map[string]bool {
	out := map[string]bool{}
	for _, typeURL := range []string{resource.ListenerType, resource.RouteType} {
		all, _ := e.builder.All(typeURL)
		for _, b := range all {
			for n := range b.EachNeed {
				if n.TypeURL == resource.ClusterType {
					out[n.Name] = true
				}
			}
		}
	}
	return out
}

// reaches reports whether a call of the client to a service is foreseen.
func (c client) reaches(s *mesh.ServiceRow, port int) bool {
	if c.routed == nil {
		return c.then.view().Service(s.Hostname) == s
	}
	for name := range c.routed {
		if ref, ok := names.ParseCluster(name); ok && int(ref.Port) == port && ref.Host == string(s.Hostname) {
			return true
		}
	}
	return false
}

func (f *foresight) run(concerned []*discovery.Proxy) {
	if len(concerned) == 0 {
		return
	}
	clients := f.clients()
	for _, to := range concerned {
		view := f.explainer(f.would, to, f.thens).receiverOf(to).view
		for _, port := range portsOf(view) {
			for _, s := range port.Services[:min(1, len(port.Services))] {
				for _, c := range clients {
					if c.now.proxy.ID == to.ID || !c.reaches(s, port.ServicePort) {
						continue
					}
					if f.more = f.more || f.calls == maxForeseenCalls; f.calls == maxForeseenCalls {
						return
					}
					f.compare(c, to, port, s)
				}
			}
		}
	}
}

// portsOf returns the ports of a workload. An ingress listener has the services that lead to its port.
func portsOf(view *mesh.View) []workload.Port {
	out, own := slices.Clone(workload.Ports(view)), workload.ServicePorts(view)
	for i, p := range out {
		k := slices.IndexFunc(own, func(o workload.Port) bool { return o.Number == p.Number })
		if p.Ingress != nil && k >= 0 {
			out[i].Services, out[i].ServicePort, out[i].Protocol = own[k].Services, own[k].ServicePort, own[k].Protocol
		}
	}
	return out
}

// compare makes the calls of a client to a port of a workload in both meshes.
func (f *foresight) compare(c client, to *discovery.Proxy, port workload.Port, s *mesh.ServiceRow) {
	t := target{host: hostText(string(s.Hostname), port.ServicePort), port: port.ServicePort, carries: port.Protocol}
	all := []call{{}}
	if t.protocol(false) == simulate.HTTP {
		all = f.requestsOf(s.Hostname)
	}
	cluster := names.Cluster(names.Outbound, uint32(port.ServicePort), "", string(s.Hostname))
	for _, one := range all {
		if f.calls == maxForeseenCalls {
			f.more = true
			return
		}
		f.calls++
		r := simulate.Request{Protocol: t.protocol(false), Host: t.host, Method: one.method, Path: one.path, Time: f.now}
		if c.now.proxy.Type == discovery.Proxyless && r.Protocol == simulate.HTTP {
			r.Protocol = simulate.HTTP2
		}
		if now, then := c.now.received(to, cluster, port.Number, r), c.then.received(to, cluster, port.Number, r); now.Outcome != Fails && then.Access.refuses() {
			text := c.now.proxy.Name + " to " + names.HostPort(string(s.Hostname), uint32(port.ServicePort)) + " at " + to.Name
			f.refused = append(f.refused, strings.TrimSpace(text+" "+one.method+" "+one.path))
		}
	}
}

// received returns what a sidecar does with a request that the explainer's proxy sends by a cluster.
func (e *explainer) received(to *discovery.Proxy, cluster string, port int, r simulate.Request) Inbound {
	address := to.IPAddresses[0]
	if len(e.proxy.IPAddresses) > 0 {
		r.Source = e.proxy.IPAddresses[0]
	}
	sent := e.asSent(cluster, names.HostPort(address, uint32(port)), r)
	ip, _ := netip.ParseAddr(address)
	sent.Address, sent.Port = addressText(ip), port
	return e.inboundOf(to, sent, sent.Protocol != r.Protocol)
}

// requestsOf returns the requests that the VirtualServices for a service foresee, and GET /.
func (f *foresight) requestsOf(h host.Name) []call {
	if f.requests == nil {
		f.requests = requestsIn(f.would)
	}
	plain := call{http.MethodGet, "/"}
	return append([]call{plain}, slices.DeleteFunc(slices.Clone(f.requests[h]), func(c call) bool { return c == plain })...)
}

// requestsIn returns the requests that VirtualServices foresee, by the host of the destination.
func requestsIn(push *mesh.PushContext) map[host.Name][]call {
	out := map[host.Name][]call{}
	for object := range push.Inputs().Configs.List(schema.VirtualService, "") {
		for _, r := range object.Spec.(*networking.VirtualService).GetHttp() {
			for _, d := range r.GetRoute() {
				to := host.Resolve(d.GetDestination().GetHost(), object.Namespace, object.Domain)
				out[to] = append(out[to], callsOf(r)...)
			}
		}
	}
	for to, all := range out {
		slices.SortFunc(all, func(a, b call) int {
			return cmp.Or(strings.Compare(a.path, b.path), strings.Compare(a.method, b.method))
		})
		all = slices.Compact(all)
		out[to] = all[:min(len(all), maxForeseenRequests)]
	}
	return out
}

// callsOf returns a request for each match of a route, as the destination gets it.
func callsOf(r *networking.HTTPRoute) []call {
	var out []call
	for _, m := range r.GetMatch() {
		path := cmp.Or(m.GetUri().GetExact(), m.GetUri().GetPrefix(), "/")
		if rewritten := r.GetRewrite().GetUri(); rewritten != "" {
			path = rewritten
		}
		out = append(out, call{cmp.Or(m.GetMethod().GetExact(), http.MethodGet), path})
	}
	return out
}
