package explain

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/labels"
	"github.com/portolan-mesh/portolan/storage/refusal"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/xds/generate"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/mesh/origins"
	"github.com/portolan-mesh/portolan/xds/names"
	"github.com/portolan-mesh/portolan/xds/progress"
	"github.com/portolan-mesh/portolan/xds/resource"
	"github.com/portolan-mesh/portolan/xds/simulate"
)

// Nodes has the mesh and the connected proxies; an *xds.DiscoveryServer implements it.
type Nodes interface {
	// Context returns the context of the newest push, nil before the first.
	Context() *mesh.PushContext
	// ContextAfter returns the context as it would be after operations on the configuration, nil
	// before the first push.
	ContextAfter(ops []storage.Op) *mesh.PushContext
	Nodes() []*discovery.Proxy
	// Refused returns what a proxy rejects, by its node id; nothing for a proxy of another server.
	Refused(ctx context.Context, node string) []progress.Refused
}

// contextOf returns the context that a question is about.
func contextOf(server Nodes, ops []storage.Op) (*mesh.PushContext, error) {
	push := server.Context()
	if push != nil && len(ops) > 0 {
		push = server.ContextAfter(ops)
	}
	if push == nil {
		return nil, refusal.Unavailable("the server has not read its configuration yet: try again in a moment")
	}
	return push, nil
}

// Others knows the proxies of other servers.
type Others interface {
	// Find refuses a request, with its parameters, about a proxy that is connected to another
	// server, or a request for another server.
	Find(query url.Values, proxy string) error
	// Runs says whether a gateway with some labels is connected to another server.
	Runs(selector labels.Instance) bool
	// Proxies returns the proxies that are connected to other servers, as far as servers tell.
	Proxies() []*discovery.Proxy
}

// Serve answers what a proxy does with a request. It builds what a server sends the proxy, and
// simulates an Envoy or a gRPC client with these resources. The work grows with the number of
// services that the proxy sees. With operations it answers as if they were applied. others may be
// nil.
func Serve(server Nodes, types []generate.ResourceType, others Others) func(*http.Request, []storage.Op) (any, error) {
	return func(r *http.Request, ops []storage.Op) (any, error) {
		q, err := readQuestion(r)
		if err != nil {
			return nil, refusal.BadRequest(err.Error())
		}
		push, err := contextOf(server, ops)
		if err != nil {
			return nil, err
		}
		nodes := server.Nodes()
		if others != nil && !slices.ContainsFunc(nodes, func(n *discovery.Proxy) bool { return n.IsNamed(q.from) }) {
			if err := others.Find(r.URL.Query(), q.from); err != nil {
				return nil, err
			}
		}
		proxy, connected, err := proxyFrom(push, nodes, q.from)
		switch {
		case err != nil:
		case q.via != "" && proxy.Type == discovery.Router && !names.IsUnix(q.via):
			err = fmt.Errorf("via %q is for sidecars, which applications call as an HTTP proxy: %s is a gateway, so name unix:///PATH of a socket of its, or a port by to", q.via, q.from)
		case q.via != "" && proxy.Type == discovery.Proxyless:
			err = fmt.Errorf("via is for proxies, which applications call as an HTTP proxy or at a socket: %s is none", q.from)
		case q.ip.IsValid() && proxy.Type != discovery.Router:
			err = fmt.Errorf("ip is the address of a gateway's client: %s is no gateway, and its client is on its machine", q.from)
		case proxy.Type == discovery.Proxyless:
			err = q.checkCall()
		}
		if err != nil {
			return nil, refusal.BadRequest(err.Error())
		}
		e := &explainer{
			question: q, push: push, nodes: nodes, others: others, connected: connected, proxy: proxy, types: types,
			builder: generate.NewBuilder(push, proxy, generate.For(types, proxy.Type)), refusals: refusalsOf(r.Context(), server, ops),
		}
		out, err := e.explain()
		if err != nil {
			return nil, err
		}
		return out, nil
	}
}

// question has the parameters of a request to the API.
type question struct {
	from, host, path, method, sni string
	at                            time.Time
	via                           string // the port of an HTTP proxy, or a socket; empty for neither
	port                          int
	headers                       map[string]string // without the host
	authority                     string            // the header "host", empty for none
	http                          bool              // the request is said to be HTTP
	tls                           bool              // it is within TLS that a gateway ends
	ip                            netip.Addr        // of the client, the zero Addr if it is not said
}

func readQuestion(r *http.Request) (question, error) {
	query := r.URL.Query()
	q := question{
		from: query.Get("from"), path: query.Get("path"), method: query.Get("method"), sni: query.Get("sni"), via: query.Get("via"),
		headers: map[string]string{}, at: time.Now(),
	}
	to, path, tls := splitURL(query.Get("to"))
	q.tls, q.path = tls, cmp.Or(q.path, path)
	name, port, ok := cutPort(to)
	if q.from == "" || query.Get("to") == "" {
		return q, errors.New("say from which proxy and to where: " + Path + "?from=PROXY&to=HOST:PORT")
	}
	if !ok || strings.Contains(name, "/") {
		return q, fmt.Errorf("to: must be a host and a port from 1 to 65535, as in %s, is %q", exampleOf(query.Get("to")), query.Get("to"))
	}
	q.host, q.port = strings.ToLower(strings.Trim(name, "[]")), port
	if err := q.readRequest(query); err != nil {
		return q, err
	}
	if !isVia(q.via) {
		return q, fmt.Errorf("via %q: use the port of an HTTP proxy, or unix:///PATH of a socket of the Sidecar", q.via)
	}
	if q.http && q.sni != "" && !q.tls {
		return q, errors.New("sni is for TLS that the proxy passes on unread: leave out path, method and header, or call https://HOST:PORT")
	}
	return q, nil
}

// readRequest reads the headers and the client's address, and checks what is known of an HTTP
// request.
func (q *question) readRequest(query url.Values) error {
	for _, header := range query["header"] {
		name, value, ok := strings.Cut(header, "=")
		if !ok || name == "" {
			return fmt.Errorf("header %q: use NAME=VALUE", header)
		}
		if strings.EqualFold(name, "host") {
			q.authority = value
		} else {
			q.headers[name] = value
		}
	}
	q.http = q.path != "" || q.method != "" || len(query["header"]) > 0
	if text := query.Get("ip"); text != "" {
		ip, err := netip.ParseAddr(text)
		if err != nil {
			return fmt.Errorf("ip: must be an address, is %q", text)
		}
		q.ip = ip
	}
	if q.path != "" && !strings.HasPrefix(q.path, "/") {
		return fmt.Errorf("path %q does not begin with /", q.path)
	}
	return nil
}

// clientAddress is the address of the client, as far as it is said.
func (q question) clientAddress() string {
	if q.ip.IsValid() {
		return addressText(q.ip)
	}
	return anywhere[true]
}

// splitURL splits https://HOST:PORT/PATH and http://HOST:PORT/PATH, whose default ports are
// 443 and 80. Anything else it returns as it is.
func splitURL(to string) (hostPort, path string, tls bool) {
	defaultPort := "443"
	rest, tls := strings.CutPrefix(to, "https://")
	if !tls {
		var plain bool
		if rest, plain = strings.CutPrefix(to, "http://"); !plain {
			return to, "", false
		}
		defaultPort = "80"
	}
	hostPort, path, found := strings.Cut(rest, "/")
	if found && path != "" {
		path = "/" + path
	}
	if _, _, ok := cutPort(hostPort); !ok && hostPort != "" && !strings.HasSuffix(hostPort, ":") {
		hostPort = net.JoinHostPort(strings.Trim(hostPort, "[]"), defaultPort)
	}
	return hostPort, path, tls
}

// checkCall refuses parameters that no call of a gRPC client can have.
func (q question) checkCall() error {
	if q.method != "" && q.method != http.MethodPost || q.sni != "" || q.tls || q.authority != "" {
		return fmt.Errorf("%s is a gRPC client: its calls are POST requests for their target, without TLS, so leave out method, sni and the header host", q.from)
	}
	return nil
}

// exampleOf returns the host and port that the user of a malformed question probably means. It
// also finds them in a URL.
func exampleOf(to string) string {
	_, rest, isURL := strings.Cut(to, "://")
	if !isURL {
		rest = to
	}
	rest, _, _ = strings.Cut(rest, "/")
	if name, port, ok := cutPort(rest); ok {
		return net.JoinHostPort(strings.Trim(name, "[]"), strconv.Itoa(port))
	}
	return cmp.Or(strings.Trim(rest, ":"), "HOST") + ":80"
}

func cutPort(to string) (string, int, bool) {
	at := strings.LastIndexByte(to, ':')
	if at <= 0 {
		return "", 0, false
	}
	port, err := strconv.ParseUint(to[at+1:], 10, 16)
	return to[:at], int(port), err == nil && port > 0
}

// explainer answers one question.
type explainer struct {
	question
	push   *mesh.PushContext
	nodes  []*discovery.Proxy // the connected ones
	others Others             // may be nil
	// connected: the proxy is no hypothetical one.
	connected bool
	proxy     *discovery.Proxy
	types     []generate.ResourceType
	builder   *generate.Builder
	built     []generate.Built // what is built so far, for the simulation
	dialed    string           // the address and port that the client connects to, empty if not known
	// sidecars are the connected sidecars by address, nil until first needed.
	sidecars map[string][]*discovery.Proxy
	// receivers are the inbound sides that are built so far, by node id.
	receivers map[string]*receiver
	refusals  refusals
}

// runs says whether the gateway is there: a hypothetical one stands for those that have the
// labels that a Gateway selects.
func (e *explainer) runs() bool {
	selector := labels.Instance(e.proxy.MetadataLabels)
	return e.proxy.Type != discovery.Router || e.connected || e.others != nil && e.others.Runs(selector) ||
		slices.ContainsFunc(e.nodes, func(n *discovery.Proxy) bool { return n.Type == discovery.Router && selector.SubsetOf(n.Labels(nil)) })
}

// view is the mesh as the proxy sees it.
func (e *explainer) view() *mesh.View { return e.builder.View() }

func (e *explainer) explain() (*Explanation, error) {
	e.buildRoutes()
	routes, err := simulated(e.push, e.built)
	if err != nil {
		return nil, err
	}
	request, known := e.request(routes)
	ends := routes.Run(request)
	for _, d := range ends.Destinations {
		e.buildCluster(d.Cluster)
	}
	for _, m := range ends.Mirrors {
		e.buildCluster(m.Cluster)
	}
	whole, err := simulated(e.push, e.built)
	if err != nil {
		return nil, err
	}
	result := whole.Run(request)
	out := &Explanation{
		TypeMeta: metav1.TypeMeta{APIVersion: "portolan.io/v1", Kind: "RequestExplanation"},
		Revision: e.push.Revision(),
		Proxy: Proxy{
			Node: e.proxy.ID, Type: string(e.proxy.Type), Name: e.proxy.Name, Namespace: e.proxy.Namespace, Connected: e.connected,
		},
		Request:  Request{Protocol: string(request.Protocol), Host: request.Host, Port: request.Port},
		Listener: result.Listener, FilterChain: result.FilterChain, VirtualHost: result.VirtualHost,
		Objects:      e.objects(resource.ListenerType, result.Listener, schema.Gateway, schema.Sidecar, schema.ServiceEntry),
		Destinations: []Destination{}, Patches: e.patches(result), NotSimulated: notSimulated(result),
		Plugins: e.refusals.plugins(e.proxy, e.push, e.built, result.Listener),
	}
	if e.proxy.Type == discovery.Router {
		out.Access = e.accessOf(e.proxy, e.view(), e.built, result, "")
		out.Access.weakenedBy(e, e.proxy, e.built, result.Listener)
	}
	if e.proxy.Type == discovery.Sidecar {
		out.Proxy.Interception = string(e.proxy.InterceptionMode)
	}
	if known {
		out.Request.Address = request.Address
		e.dialed = dialedText(request)
	}
	if !isStream(request) {
		out.Request.Method, out.Request.Path = cmp.Or(request.Method, http.MethodGet), cmp.Or(request.Path, "/")
	}
	if out.Route = e.route(whole, result); isStream(request) && result.Err == nil {
		out.Route = e.streamRoute(request, result)
	}
	for _, d := range result.Destinations {
		one := e.destination(whole, d, result)
		one.Inbound = e.inbound(one.Endpoints, d.Cluster, request, result)
		if one.TLS == "" && one.Fails == "" {
			one.TLS, one.Plaintext = e.unencrypted(d.Cluster, request, result)
		}
		out.Destinations = append(out.Destinations, one)
	}
	e.conclude(out, request, result)
	return out, nil
}

// buildRoutes builds the listeners and routes of the proxy. For a gRPC client it builds only
// those of the target.
func (e *explainer) buildRoutes() {
	if e.proxy.Type == discovery.Proxyless {
		for need := range e.build(resource.ListenerType, e.target()) {
			e.build(need.TypeURL, need.Name)
		}
		return
	}
	for _, typeURL := range []string{resource.ListenerType, resource.RouteType} {
		all, _ := e.builder.All(typeURL) // resources that cannot be built are missing at the proxy, too
		filters, _ := e.builder.Needed(resource.ExtensionType, all)
		e.built = slices.Concat(e.built, all, e.refusals.asHeld(e.proxy, filters))
	}
}

// buildCluster builds a cluster and its endpoints, if they exist.
func (e *explainer) buildCluster(name string) {
	for need := range e.build(resource.ClusterType, name) {
		if need.TypeURL == resource.EndpointType {
			e.build(need.TypeURL, need.Name)
		}
	}
}

// build builds a resource, if it exists, and returns its needs.
func (e *explainer) build(typeURL, name string) func(func(resource.Need) bool) {
	built, err := e.builder.One(typeURL, name)
	if err != nil || built.Resource == nil {
		return func(func(resource.Need) bool) {}
	}
	e.built = append(e.built, built)
	return built.EachNeed
}

func simulated(push *mesh.PushContext, built []generate.Built) (*simulate.Proxy, error) {
	resources := make([]*resource.Resource, 0, len(built))
	for _, b := range built {
		resources = append(resources, b.Resource)
	}
	return simulate.NewPatched(resources, patchedListeners(push, built))
}

// objects returns the objects of some kinds that a listener or cluster was built from.
func (e *explainer) objects(typeURL, name string, kinds ...config.GroupVersionKind) []string {
	return originsOf(e.built, typeURL, name, kinds...)
}

// originsOf returns the objects of some kinds that one of the built resources was built from.
func originsOf(built []generate.Built, typeURL, name string, kinds ...config.GroupVersionKind) []string {
	return namesOf(origins.Of(builtAs(built, typeURL, name).Reads), kinds...)
}
