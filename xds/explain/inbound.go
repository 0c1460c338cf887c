package explain

import (
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/xds/generate"
	"github.com/portolan-mesh/portolan/xds/generate/workload"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/mesh/origins"
	"github.com/portolan-mesh/portolan/xds/mesh/peer"
	"github.com/portolan-mesh/portolan/xds/names"
	"github.com/portolan-mesh/portolan/xds/resource"
	"github.com/portolan-mesh/portolan/xds/simulate"
)

// inbound says what the connected sidecars of some endpoints do with an incoming request.
// Sidecars that do the same share an entry. The request came by a cluster, which may encrypt it.
func (e *explainer) inbound(endpoints []string, cluster string, r simulate.Request, sent simulate.Result) []Inbound {
	if sent.Action != nil {
		r.Host, r.Path, r.Headers = sent.Host, sent.Path, sent.Headers
	}
	if len(e.proxy.IPAddresses) > 0 {
		r.Source = e.proxy.IPAddresses[0]
	}
	asked := r
	var out []Inbound
	for _, endpoint := range endpoints {
		name, port, ok := cutPort(endpoint)
		ip, err := netip.ParseAddr(name)
		if !ok || err != nil {
			continue // not an IP address, such as a Unix domain socket
		}
		r := e.asSent(cluster, endpoint, asked)
		encrypted := r.Protocol != asked.Protocol
		if r.Protocol == simulate.GRPC {
			r.Protocol = simulate.HTTP2
		}
		for _, proxy := range e.sidecarsBeside(ip) {
			r.Address, r.Port = addressText(ip), port
			out = add(out, e.inboundOf(proxy, r, cluster, encrypted), endpoint, proxy)
		}
	}
	return out
}

// add adds what the sidecar at an endpoint does. Sidecars that do the same share an entry.
func add(all []Inbound, in Inbound, endpoint string, proxy *discovery.Proxy) []Inbound {
	i := slices.IndexFunc(all, func(o Inbound) bool {
		o.Endpoints, o.Proxies = nil, nil
		return reflect.DeepEqual(o, in)
	})
	if i < 0 {
		i, all = len(all), append(all, in)
	}
	all[i].Endpoints = append(all[i].Endpoints, endpoint)
	all[i].Proxies = append(all[i].Proxies, proxy.ID)
	return all
}

// sidecarsBeside returns the connected sidecars at an address.
func (e *explainer) sidecarsBeside(ip netip.Addr) []*discovery.Proxy {
	if e.sidecars == nil {
		e.sidecars = map[string][]*discovery.Proxy{}
		all := e.nodes
		if e.others != nil {
			all = slices.Concat(all, e.others.Proxies())
		}
		for _, p := range all {
			for _, address := range p.IPAddresses {
				if own, err := netip.ParseAddr(address); err == nil && p.Type == discovery.Sidecar {
					e.sidecars[addressText(own)] = append(e.sidecars[addressText(own)], p)
				}
			}
		}
	}
	return e.sidecars[addressText(ip)]
}

// receiver is the inbound side of a sidecar, as a server builds it.
type receiver struct {
	view               *mesh.View
	listeners, filters []generate.Built
	clusters           []generate.Built
	simulated          *simulate.Proxy
	err                error // why it cannot be simulated
}

// receiverOf builds the inbound side of a sidecar, once.
func (e *explainer) receiverOf(proxy *discovery.Proxy) *receiver {
	if r := e.receivers[proxy.ID]; r != nil {
		return r
	}
	var own []generate.Generator
	for _, t := range e.types {
		switch {
		case t.Inbound != nil:
			own = append(own, t.Inbound)
		case t.Needed:
			own = append(own, t.Generator)
		}
	}
	b := generate.NewBuilder(e.push, proxy, own)
	out := &receiver{view: b.View()}
	out.listeners, _ = b.All(resource.ListenerType) // resources that cannot be built are missing at the proxy, too
	out.clusters, _ = b.All(resource.ClusterType)
	out.filters, _ = b.Needed(resource.ExtensionType, out.listeners)
	out.filters = e.refusals.asHeld(proxy, out.filters)
	out.simulated, out.err = simulated(e.push, slices.Concat(out.listeners, out.clusters, out.filters))
	if e.receivers == nil {
		e.receivers = map[string]*receiver{}
	}
	e.receivers[proxy.ID] = out
	return out
}

// run simulates a request that comes to the machine of the sidecar.
func (to *receiver) run(r simulate.Request) simulate.Result {
	result := to.simulated.Run(r)
	if passesInbound(result) { // it may lead to another listener of the proxy, which is not captured
		r.Inbound = false
		if bound := to.simulated.Run(r); !errors.Is(bound.Err, simulate.ErrNoListener) {
			return bound
		}
	}
	return result
}

// inboundOf simulates the inbound side of a sidecar. The request comes by a cluster, which may have
// encrypted it; the cluster is empty for none.
func (e *explainer) inboundOf(proxy *discovery.Proxy, r simulate.Request, cluster string, encrypted bool) Inbound {
	to := e.receiverOf(proxy)
	if to.err != nil {
		return Inbound{Outcome: Unknown, Reason: to.err.Error()}
	}
	r.Inbound = proxy.ID != e.proxy.ID
	result := to.run(r)
	out := Inbound{Listener: result.Listener, FilterChain: result.FilterChain, VirtualHost: result.VirtualHost, NotSimulated: notSimulated(result)}
	out.Patches = e.refusals.patchesOn(proxy, to.listeners, resource.ListenerType, result.Listener, "listener")
	out.Plugins = e.refusals.plugins(proxy, e.push, slices.Concat(to.listeners, to.filters), result.Listener)
	for _, d := range result.Destinations {
		out.Patches = append(out.Patches, e.refusals.patchesOn(proxy, to.clusters, resource.ClusterType, d.Cluster, "cluster")...)
	}
	if port, ok := takenBy(to.view, r.Port, result); ok {
		if port.Ingress != nil {
			out.Objects = originsOf(to.listeners, resource.ListenerType, result.Listener, schema.Sidecar)
		}
		for _, s := range port.Services {
			out.Objects = append(out.Objects, namesOf(origins.Of([]mesh.Dependency{{Answer: s}}), schema.ServiceEntry)...)
		}
	}
	scope, labels := to.view.OwnPeers()
	decided := scope.Decide(labels, r.Port)
	if p := decided.By; p != nil {
		out.Mode, out.ModeBy = decided.Mode.String(), p.Config.Key().String()
	}
	out.Access = e.accessOf(proxy, to.view, to.filters, result, e.unproved(to, decided, cluster, names.HostPort(r.Address, uint32(r.Port)), r))
	out.Access.weakenedBy(e, proxy, to.listeners, result.Listener)
	switch {
	case out.Access.refuses():
		out.Outcome, out.Status, out.Reason = Fails, result.Status, out.Access.Reason
		return out
	case out.Access.isOpen():
		out.Outcome, out.Reason = Unknown, out.Access.Reason
		return out
	}
	if out.Reason = malformed(result); out.Reason != "" {
		out.Outcome, out.Status = Fails, result.Status
		return out
	}
	concludeInbound(&out, proxy.ID == e.proxy.ID, encrypted, r, result)
	if decided.Mode == peer.Strict && out.Outcome == Fails {
		out.Reason = strictReason(out.ModeBy, encrypted, proxy.HasCertificate())
	}
	return out
}

// strictReason says why a connection fails where mutual TLS is demanded.
func strictReason(by string, encrypted, certified bool) string {
	switch {
	case !certified:
		return by + " demands mutual TLS, and the sidecar has no certificate of the mesh: nothing gets in"
	case encrypted:
		return by + " demands mutual TLS of the mesh, and the client begins another TLS: leave tls out of its DestinationRule"
	}
	return by + " demands mutual TLS, and the client begins in plaintext: give the endpoint the label security.istio.io/tlsMode: istio, and the proxy of the client a certificate"
}

// takenBy returns the port of the workload that a request to a port number comes to, false if
// none is for it.
func takenBy(v *mesh.View, number int, result simulate.Result) (workload.Port, bool) {
	if result.Err != nil || len(result.Destinations) == 0 || passesInbound(result) {
		return workload.Port{}, false
	}
	if p, ok := workload.Find(v, result.Destinations[0].Cluster); ok {
		return p, true
	}
	return workload.Find(v, names.InboundCluster(uint32(number)))
}

// passedEncrypted is the reason beside a request that the sidecar forwards as the client
// encrypted it.
const passedEncrypted = "the DestinationRule of the client begins TLS, and the sidecar passes it on as it is: the application must end it"

func passesInbound(result simulate.Result) bool {
	return len(result.Destinations) == 1 && result.Destinations[0].Cluster == names.InboundPassthroughCluster
}

// concludeInbound fills in the outcome of an incoming request. own means that the proxy sends
// it to its own machine, and encrypted that it began TLS for it.
func concludeInbound(out *Inbound, own, encrypted bool, r simulate.Request, result simulate.Result) {
	switch {
	case errors.Is(result.Err, simulate.ErrNoListener) && own:
		out.Outcome, out.Reason = Passed, "the proxy's own connections are not captured: the application takes them"
		return
	case errors.Is(result.Err, simulate.ErrNoListener):
		out.Outcome, out.Reason = Passed, fmt.Sprintf("the sidecar captures nothing that comes in, and no ingress listener of a Sidecar is for port %d: the application takes it", r.Port)
		return
	case errors.Is(result.Err, simulate.ErrNoFilterChain):
		out.Outcome, out.Reason = Fails, "the listener closes the connection: no filter chain of it matches"
		return
	case errors.Is(result.Err, simulate.ErrPlaintext):
		out.Outcome, out.Reason = Fails, "the sidecar ends TLS on this port, and the client begins in plaintext: give its DestinationRule tls"
		return
	case result.Err != nil && !errors.Is(result.Err, simulate.ErrEncrypted):
		out.Outcome, out.Reason = Unknown, result.Err.Error()
		return
	case encrypted && (errors.Is(result.Err, simulate.ErrEncrypted) || result.VirtualHost != "" && result.Chain.GetTransportSocket() == nil):
		out.Outcome, out.Reason = Fails, "the DestinationRule of the client begins TLS, and the sidecar ends none on this port: leave tls out, or give an ingress listener of its Sidecar tls"
		return
	case errors.Is(result.Err, simulate.ErrEncrypted), isStream(r) && result.VirtualHost != "":
		out.Outcome, out.Reason = Fails, "the listener takes nothing but HTTP in plain text"
		return
	}
	out.Outcome, out.Cluster = Forwarded, result.Destinations[0].Cluster
	out.Application = strings.Join(result.Endpoints(), ",")
	switch {
	case passesInbound(result):
		out.Outcome, out.Reason = Passed, fmt.Sprintf("no service of its namespace has the workload serve port %d: it goes on to the application as it is", r.Port)
	case out.Cluster == names.BlackHoleCluster:
		out.Outcome, out.Reason = Fails, fmt.Sprintf("port %d is that of the proxy's own listener", r.Port)
	case result.Destinations[0].Missing:
		out.Outcome, out.Reason = Fails, "the ingress listener names no address of the application"
	case encrypted && result.Chain.GetTransportSocket() == nil:
		out.Reason = passedEncrypted
	}
}
