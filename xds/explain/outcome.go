package explain

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/host"
	"github.com/portolan-mesh/portolan/storage/labels"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/xds/generate/route"
	"github.com/portolan-mesh/portolan/xds/mesh/class"
	"github.com/portolan-mesh/portolan/xds/names"
	"github.com/portolan-mesh/portolan/xds/simulate"
)

func (e *explainer) conclude(out *Explanation, request simulate.Request, result simulate.Result) {
	noHost := errors.Is(result.Err, simulate.ErrNoVirtualHost) || errors.Is(result.Err, simulate.ErrNoRouteConfig)
	noRoute := errors.Is(result.Err, simulate.ErrNoRoute)
	switch {
	case out.Access.refuses():
		out.Outcome, out.Status, out.Reason = Fails, result.Status, out.Access.Reason
	case malformed(result) != "":
		out.Outcome, out.Status, out.Reason = Fails, result.Status, malformed(result)
	case errors.Is(result.Err, simulate.ErrNoListener):
		out.Outcome, out.Reason = e.noListener()
	case errors.Is(result.Err, simulate.ErrNoFilterChain):
		out.Outcome, out.Reason = Fails, "the listener closes the connection: "+e.whyNoChain(request)
	case errors.Is(result.Err, simulate.ErrPlaintext):
		out.Outcome, out.Reason = Fails, fmt.Sprintf("the listener ends TLS: call https://%s", request.Host)
	case errors.Is(result.Err, simulate.ErrEncrypted), isStream(request) && (noHost || result.VirtualHost != ""):
		out.Outcome, out.Status, out.Reason = Fails, http.StatusBadRequest, "the listener takes nothing but HTTP in plain text"
		out.Route, out.Destinations = nil, []Destination{}
	case request.Protocol == simulate.GRPC && (noHost || noRoute):
		out.Outcome, out.Reason = Fails, "no route of the target matches: the call fails as unavailable"
	case noHost:
		out.Outcome, out.Status, out.Reason = Fails, http.StatusNotFound, fmt.Sprintf("no route is for host %s on port %d", request.Host, e.port)
	case noRoute:
		out.Outcome, out.Status, out.Reason = Fails, http.StatusNotFound, e.whyNoRoute(request, result)
	case result.Err != nil:
		out.Outcome, out.Reason = Unknown, result.Err.Error()
	case result.Fault.AbortsAll():
		out.Outcome, out.Reason = Answered, "the fault of the route answers every request"
		if request.Protocol != simulate.GRPC {
			out.Status, _ = strconv.Atoi(result.Fault.Abort) // the text of the fault has a gRPC status
		}
	case result.Status != 0:
		out.Outcome, out.Status, out.Location = Answered, result.Status, result.Location
		if result.VirtualHost == names.BlockAllVirtualHost {
			out.Outcome = Fails
			out.Reason = fmt.Sprintf("no service has host %s on port %d, and the outbound traffic policy REGISTRY_ONLY lets nothing else pass", request.Host, e.port)
		}
	default:
		e.concludeForwarded(out, request)
	}
	if !e.runs() {
		out.Outcome, out.Status, out.Location = Fails, 0, ""
		out.Reason = fmt.Sprintf("no gateway with the labels %s is connected, so nobody listens there", labels.Instance(e.proxy.MetadataLabels))
	}
	if why := e.lostAlias(); why != "" && out.isUnrouted() {
		out.Reason = strings.TrimSuffix(why+"; "+out.Reason, "; ")
	}
}

// isUnrouted reports whether neither a service nor a route of an object takes the request.
func (out *Explanation) isUnrouted() bool {
	return (out.Route == nil || out.Route.Object == "") && !slices.ContainsFunc(out.Destinations, func(d Destination) bool { return d.Host != "" })
}

func (e *explainer) concludeForwarded(out *Explanation, request simulate.Request) {
	failing, all, unknown := 0., true, ""
	for _, d := range out.Destinations {
		unknown = cmp.Or(unknown, d.unknown())
		why, share := d.Fails, 1.
		if why == "" {
			why, share = d.refused()
		}
		all = all && share == 1
		if why != "" {
			failing += d.Percent * share
			out.Reason = strings.TrimPrefix(out.Reason+"; "+destinationName(d)+": "+why, "; ")
		}
	}
	if failing > 0 && request.Protocol == simulate.HTTP && out.Route != nil {
		out.Status = http.StatusServiceUnavailable
		for _, d := range out.Destinations {
			for _, in := range d.Inbound {
				out.Status = cmp.Or(in.Status, out.Status)
			}
		}
	}
	switch {
	case all:
		out.Outcome = Fails
	case unknown != "":
		out.Outcome, out.Status, out.Reason = Unknown, 0, unknown
	case failing > 0:
		out.Outcome = PartlyFails
	case out.Destinations[0].Cluster == names.PassthroughCluster:
		out.Outcome, out.Reason = Passed, "no service is meant: it goes on to the client's destination"
		if s := e.service(netip.Addr{}); s != nil && s.Service().Resolution != discovery.DynamicDNS {
			out.Reason = fmt.Sprintf("the mesh knows no address of %s: it goes on to the client's destination", e.host)
		}
	case out.Destinations[0].Cluster == names.AllowAnyDynamicDNSCluster:
		out.Outcome, out.Reason = Passed, "no service is meant: the proxy resolves the host that the request names, as ALLOW_ANY_DYNAMIC_DNS says"
	default:
		out.Outcome = Forwarded
		if slices.ContainsFunc(out.Destinations, Destination.isPassedEncrypted) {
			out.Reason = passedEncrypted
		}
		if other := e.receivingEntry(out, request); other != "" {
			out.Outcome = Fails
			out.Reason = fmt.Sprintf("the proxy captures no traffic, so only the port tells connections apart, and those on port %d are all for %s, which is older: from here nothing reaches %s", e.port, other, e.host)
		}
	}
}

// refused says why the connected sidecars of some endpoints refuse the request, and which share
// of the endpoints these are; "" if none does.
func (d Destination) refused() (why string, share float64) {
	refusing := 0
	for _, in := range d.Inbound {
		if in.Outcome == Fails {
			refusing += len(in.Endpoints)
			why = strings.TrimPrefix(why+"; the sidecar at "+strings.Join(in.Endpoints, ", ")+" refuses it: "+in.Reason, "; ")
		}
	}
	if refusing == 0 {
		return "", 0
	}
	return why, float64(refusing) / float64(len(d.Endpoints))
}

// unknown says why it is not known what the connected sidecars of some endpoints do; "" if it is.
func (d Destination) unknown() string {
	i := slices.IndexFunc(d.Inbound, func(in Inbound) bool { return in.Outcome == Unknown })
	if i < 0 {
		return ""
	}
	in := d.Inbound[i]
	return "the sidecar at " + strings.Join(in.Endpoints, ", ") + ": " + in.Reason
}

// isPassedEncrypted reports whether a connected sidecar passes TLS of the client on.
func (d Destination) isPassedEncrypted() bool {
	return slices.ContainsFunc(d.Inbound, func(in Inbound) bool { return in.Outcome == Forwarded && in.Reason == passedEncrypted })
}

// receivingEntry names the ServiceEntry that gets the connections meant for the host, if the proxy
// captures no traffic. It returns "" if the host gets them.
func (e *explainer) receivingEntry(out *Explanation, request simulate.Request) string {
	if request.Protocol != simulate.TCP || e.via != "" || e.proxy.Type != discovery.Sidecar || e.view().Shape().Captures() {
		return ""
	}
	if _, err := netip.ParseAddr(e.host); err == nil {
		return ""
	}
	s := e.service(netip.Addr{})
	if s == nil || !isTCP(s, e.port) || s.Service().Attributes.Provider != discovery.External {
		return ""
	}
	var others []string
	for _, object := range out.Objects {
		switch kind, _, _ := strings.Cut(object, "/"); {
		case kind != "serviceentry":
		case slices.ContainsFunc(s.Services, func(one *discovery.Service) bool {
			return object == config.Key{Kind: schema.ServiceEntry, Namespace: one.Attributes.Namespace, Name: one.Attributes.Name}.String()
		}):
			return ""
		default:
			others = append(others, object)
		}
	}
	return strings.Join(others, ", ")
}

// destinationName returns a destination as text: "reviews.shop:9080 subset v1".
func destinationName(d Destination) string {
	if d.Host == "" {
		return d.Cluster
	}
	name := names.HostPort(d.Host, uint32(d.Port))
	if d.Subset != "" {
		name += " subset " + d.Subset
	}
	return name
}

// noListener returns the outcome of a connection that no listener accepts.
func (e *explainer) noListener() (outcome, reason string) {
	ip, err := netip.ParseAddr(e.host)
	switch {
	case e.via != "" && e.proxy.Type == discovery.Router:
		return Fails, fmt.Sprintf("the gateway does not listen at %s: see the servers of its Gateways", e.via)
	case e.via != "":
		return Fails, fmt.Sprintf("the proxy does not listen at %s: see egress of its Sidecar, and proxyHttpPort of the mesh configuration", e.via)
	case e.proxy.Type == discovery.Proxyless && e.called() != e.host && e.lostAlias() == "":
		return Fails, fmt.Sprintf("%s is an alias of %s, and gRPC clients dial no alias: dial %s", e.host, e.called(), e.called())
	case e.proxy.Type == discovery.Proxyless:
		return Fails, fmt.Sprintf("the client sees no service with the target %s: its calls fail as unavailable", e.target())
	case e.proxy.Type == discovery.Sidecar && err == nil && e.view().Shape().Captures() && ip.IsLoopback():
		return Passed, "connections to a loopback address are not captured: they do not come to the proxy"
	case e.proxy.Type == discovery.Sidecar && err == nil:
		return Passed, "the proxy captures nothing and does not listen there: the connection does not come to it"
	}
	port := e.port
	if e.proxy.Type == discovery.Router {
		port = e.listeningPort()
	}
	return Fails, fmt.Sprintf("the proxy does not listen on port %d: %s", port, e.whyNoListener())
}

func (e *explainer) whyNoListener() string {
	view := e.view()
	switch gateway := view.Gateway(); {
	case e.proxy.Type != discovery.Router && e.push.Host(host.Name(e.host)) != nil && e.lostAlias() == "":
		if sidecar := e.sidecarWithoutPort(); sidecar != "" {
			return fmt.Sprintf("no egress listener of %s carries %s on this port", sidecar, e.host)
		}
		return e.missing(Destination{Host: e.called(), Port: e.port})
	case e.proxy.Type != discovery.Router:
		return "no service that it sees has this port"
	case gateway == nil || len(gateway.Gateways) == 0:
		return "no Gateway selects it"
	default:
		var names []string
		for _, g := range gateway.Gateways {
			names = append(names, g.Key().String())
		}
		if lacking := e.lacking(); lacking != "" {
			return lacking
		}
		if e.passesBytes() {
			return "no VirtualService has a tcp route for the server of " + strings.Join(names, ", ") + " on this port"
		}
		return "no server of " + strings.Join(names, ", ") + " is for HTTP or TCP on this port"
	}
}

// sidecarWithoutPort returns the Sidecar whose egress listeners do not carry the host's service
// on the port, though the proxy sees it; empty for none.
func (e *explainer) sidecarWithoutPort() string {
	view := e.view()
	service := view.Reached(host.Name(e.host))
	if service == nil {
		return ""
	}
	if _, has := service.Port(e.port); !has {
		return ""
	}
	for _, l := range route.ListenersOf(view, e.port) {
		if view.ServiceAt(l, service.Hostname) != nil {
			return ""
		}
	}
	for path := range view.Class().Attached.Names(class.Sidecar) {
		return e.push.Inputs().Configs.Configs().Value(path).Key().String()
	}
	return ""
}

func (e *explainer) whyNoRoute(request simulate.Request, result simulate.Result) string {
	if route.IsBlackHole(result.VirtualHost) {
		return fmt.Sprintf("no VirtualService of the Gateway has a route on port %d", e.port)
	}
	return fmt.Sprintf("no route of the VirtualServices for %s matches %s %s", request.Host, cmp.Or(request.Method, http.MethodGet), cmp.Or(request.Path, "/"))
}

// namesOf returns the names of those objects among keys that are of some kinds.
func namesOf(keys []config.Key, kinds ...config.GroupVersionKind) []string {
	var out []string
	for _, key := range keys {
		if slices.ContainsFunc(kinds, func(k config.GroupVersionKind) bool { return k.Group == key.Kind.Group && k.Kind == key.Kind.Kind }) {
			out = append(out, key.String())
		}
	}
	return out
}
