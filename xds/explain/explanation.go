package explain

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Path is the path of an Explanation. Its parameters are from, to (HOST:PORT)
// and, if they are known, path, method, header (NAME=VALUE, several times), sni, ip (of a
// gateway's client) and via (the port of an HTTP proxy, or unix:///PATH).
const Path = "/apis/portolan.io/v1/explain"

// The outcomes of a request.
const (
	Forwarded   = "Forwarded"   // to endpoints
	Answered    = "Answered"    // by the proxy, as an object says: a redirect, a direct response, a fault
	Passed      = "Passed"      // on to the client's destination, as no service is meant
	Fails       = "Fails"       // always
	PartlyFails = "PartlyFails" // the share of some destinations fails
	Unknown     = "Unknown"     // the simulation does not know what the proxy has
)

// Explanation says what a proxy does with a request, and which objects cause it. Its JSON form
// is an API.
type Explanation struct {
	metav1.TypeMeta `json:",inline"`
	// Revision is the store's revision that the explanation is for.
	Revision int64   `json:"revision"`
	Proxy    Proxy   `json:"proxy"`
	Request  Request `json:"request"`
	// Listener and FilterChain are the names of what accepts the connection. Objects are the
	// Gateways, Sidecars and ServiceEntries behind it.
	Listener    string   `json:"listener,omitempty"`
	FilterChain string   `json:"filterChain,omitempty"`
	Objects     []string `json:"objects,omitempty"`
	VirtualHost string   `json:"virtualHost,omitempty"`
	// Access is what the policies of a gateway say; absent if the request does not come to them.
	Access *Access `json:"access,omitempty"`
	// Route is the route that matches; absent for a connection that no VirtualService
	// routes.
	Route        *Route        `json:"route,omitempty"`
	Destinations []Destination `json:"destinations"`
	// Outcome is one of the constants above. Status is the status of an answer by the proxy
	// itself, 0 for a closed connection. Location is the target of a redirect.
	Outcome  string `json:"outcome"`
	Status   int    `json:"status,omitempty"`
	Location string `json:"location,omitempty"`
	// Reason says why a request fails, or adds a hint.
	Reason string `json:"reason,omitempty"`
	// Patches are the patches of EnvoyFilters on what the request takes. NotSimulated says which
	// filters of theirs are not known: the explanation is true if they let the request be.
	Patches      []Patch  `json:"patches,omitempty"`
	NotSimulated []string `json:"notSimulated,omitempty"`
	// Plugins says of each WasmPlugin there that does not run as it is written what the proxy does instead.
	Plugins []string `json:"plugins,omitempty"`
}

// Proxy is the proxy that sends the request on, or the gRPC client.
type Proxy struct {
	Node      string `json:"node"`
	Type      string `json:"type"`
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
	// Connected is false for a hypothetical proxy.
	Connected    bool   `json:"connected"`
	Interception string `json:"interception,omitempty"`
}

// Request is the request as the proxy sees it.
type Request struct {
	Protocol string `json:"protocol"`
	Host     string `json:"host"`
	// Address is where the client connects to, with the Port unless it is a socket. It is empty
	// if only DNS knows it, and for gRPC clients.
	Address string `json:"address,omitempty"`
	Port    int    `json:"port"`
	Method  string `json:"method,omitempty"`
	Path    string `json:"path,omitempty"`
}

// Route is a route, and its place in a VirtualService. The place is empty for a route that
// comes from no VirtualService.
type Route struct {
	Name   string `json:"name"`
	Object string `json:"object,omitempty"`
	// Source is the source that the object comes from; empty for the store.
	Source string `json:"source,omitempty"`
	Field  string `json:"field,omitempty"`
	// Root is the VirtualService that delegates to the object, and RootField the route in it;
	// empty if the route is not of a delegate.
	Root      string `json:"root,omitempty"`
	RootField string `json:"rootField,omitempty"`
	Timeout   string `json:"timeout,omitempty"`
	// Retries is how often the proxy retries a request, and RetryOn the conditions.
	Retries       uint32 `json:"retries,omitempty"`
	RetryOn       string `json:"retryOn,omitempty"`
	PerTryTimeout string `json:"perTryTimeout,omitempty"`
	Fault         string `json:"fault,omitempty"`
	// Mirrors are the clusters that get copies of requests, with their shares, such as "10%
	// to outbound|80||reviews.example.com".
	Mirrors []string `json:"mirrors,omitempty"`
	// MirrorsLost says which mirrored requests reach no endpoint, and why.
	MirrorsLost []string `json:"mirrorsLost,omitempty"`
	// HostRewritten and PathRewritten are what the destination sees, if it differs.
	HostRewritten string `json:"hostRewritten,omitempty"`
	PathRewritten string `json:"pathRewritten,omitempty"`
	// NotTaken lists the fields that a gRPC client ignores: first those of Root, then those of
	// Object.
	NotTaken []string `json:"notTaken,omitempty"`
}

// Destination is a cluster that requests go to.
type Destination struct {
	Cluster string `json:"cluster"`
	Host    string `json:"host,omitempty"`
	Port    int    `json:"port,omitempty"`
	Subset  string `json:"subset,omitempty"`
	// Percent is the destination's share of the requests.
	Percent float64 `json:"percent"`
	// Services and Rules are the ServiceEntries and the DestinationRules behind the cluster.
	Services     []string `json:"services,omitempty"`
	Rules        []string `json:"rules,omitempty"`
	LoadBalancer string   `json:"loadBalancer,omitempty"`
	// TLS says how connections to it are encrypted, and Plaintext why they are not. Both are empty
	// if nothing is sent.
	TLS       string `json:"tls,omitempty"`
	Plaintext string `json:"plaintext,omitempty"`
	// NotTaken lists the fields of the rules that a gRPC client ignores.
	NotTaken []string `json:"notTaken,omitempty"`
	// Endpoints are the addresses that get requests, and Localities how many there are.
	Endpoints  []string   `json:"endpoints,omitempty"`
	Localities []Locality `json:"localities,omitempty"`
	// Preference says which localities the proxy prefers, and in which order; empty if
	// localities make no difference.
	Preference string `json:"preference,omitempty"`
	// LeftOut lists the workloads that are no endpoint because of their health, and why.
	LeftOut []string `json:"leftOut,omitempty"`
	// Inbound says what the connected sidecars of the endpoints do.
	Inbound []Inbound `json:"inbound,omitempty"`
	// Fails says why requests to it fail; empty if they do not.
	Fails string `json:"fails,omitempty"`
}

// Inbound says what sidecars do with a request to their workloads.
type Inbound struct {
	Endpoints []string `json:"endpoints"`
	// Proxies are the node ids of the sidecars, one for each of the Endpoints.
	Proxies     []string `json:"proxies"`
	Listener    string   `json:"listener,omitempty"`
	FilterChain string   `json:"filterChain,omitempty"`
	VirtualHost string   `json:"virtualHost,omitempty"`
	Cluster     string   `json:"cluster,omitempty"`
	// Objects are the Sidecar, or the ServiceEntries, that define the port.
	Objects []string `json:"objects,omitempty"`
	// Application is the address of the application; empty if it is the endpoint's address.
	Application string `json:"application,omitempty"`
	// Mode says how the port takes connections, and ModeBy names the PeerAuthentication that
	// says so; both are empty if none does, which is PERMISSIVE.
	Mode   string `json:"mode,omitempty"`
	ModeBy string `json:"modeBy,omitempty"`
	// Access is what the policies say; absent if the request does not come to them.
	Access *Access `json:"access,omitempty"`
	// Outcome is Forwarded, Passed (no object defines the port), Fails or Unknown. Status is that
	// with which a policy refuses the request, 0 for none.
	Outcome string `json:"outcome"`
	Status  int    `json:"status,omitempty"`
	Reason  string `json:"reason,omitempty"`
	// Patches, NotSimulated and Plugins are as in an Explanation.
	Patches      []Patch  `json:"patches,omitempty"`
	NotSimulated []string `json:"notSimulated,omitempty"`
	Plugins      []string `json:"plugins,omitempty"`
}

// Locality counts the endpoints of one locality and priority; priority 0 is used first. Weight
// is the locality's share within its priority, if the proxy uses weights.
type Locality struct {
	Locality string `json:"locality,omitempty"`
	Healthy  int    `json:"healthy"`
	Total    int    `json:"total"`
	Priority uint32 `json:"priority,omitempty"`
	Weight   uint32 `json:"weight,omitempty"`
}
