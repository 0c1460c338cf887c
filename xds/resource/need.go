package resource

// The types that Portolan serves, in the order in which they are sent.
const (
	ClusterType     = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
	EndpointType    = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
	ListenerType    = "type.googleapis.com/envoy.config.listener.v3.Listener"
	RouteType       = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration"
	VirtualHostType = "type.googleapis.com/envoy.config.route.v3.VirtualHost"
	SecretType      = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret"
	ExtensionType   = "type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig"
)

// HealthType is the type of the requests by which a machine says how it is. (Istio:
// pkg/model.HealthInfoType.)
const HealthType = "type.googleapis.com/istio.v1.HealthInformation"

// FactsType is the type of the requests by which the agent of a machine says what it runs, in the
// metadata of the node. They ask for nothing and are not answered.
const FactsType = "type.googleapis.com/portolan.machine.v1.Facts"

// RegistrationType is the type of the one resource, RegistrationName, by which a machine learns what
// has become of its registration: a google.protobuf.Struct as discovery/node.Standing makes it.
const (
	RegistrationType = "type.googleapis.com/portolan.machine.v1.Registration"
	RegistrationName = "registration"
)

// ProxyConfigType is the type of the one resource, ProxyConfigName, by which a machine learns what the
// mesh says of its proxy: Istio's message of the mesh configuration.
const (
	ProxyConfigType = "type.googleapis.com/istio.mesh.v1alpha1.ProxyConfig"
	ProxyConfigName = "proxy"
)

// BootstrapType is the type of the one resource, BootstrapName, by which a machine learns what
// EnvoyFilters merge into the bootstrap of its proxy: a Bootstrap of Envoy as a google.protobuf.Struct,
// so that an agent can pass on messages that it does not know.
const (
	BootstrapType = "type.googleapis.com/portolan.machine.v1.Bootstrap"
	BootstrapName = "bootstrap"
)

// ConfigType is the type of the messages that carry objects. The types that other control
// planes request are the kinds of these objects.
const ConfigType = "type.googleapis.com/istio.mcp.v1alpha1.Resource"

// Need is what a client needs besides a resource before it can use it, as a cluster needs
// its endpoints. A server that does not serve the needed type does not wait for it.
type Need struct {
	TypeURL, Name string
	Kind          NeedKind
}

// NeedKind says what a need means for the order of sending.
type NeedKind uint8

const (
	// Warm: the client uses the resource only once it has the needed one. The server
	// sends the needed one again with each form of the resource: a changed listener waits
	// for its routes anew.
	Warm NeedKind = iota + 1
	// Covered is Warm, and the version of the needed resource also covers the version of
	// this one: whoever lacks a changed cluster lacks its endpoints too.
	Covered
	// Once: the client uses the resource only once it has the needed one, which the server
	// does not send again with it. So it is with secrets, and with the configuration of
	// filters.
	Once
	// Traffic: the resource sends traffic to the needed one, as a route to a cluster. The
	// server sends the resource once the client can use the needed one, and withdraws the
	// needed one last.
	Traffic
	// Within: the needed resources live in this one, as virtual hosts in a route
	// configuration, and the client forgets them with it. Their names are Name, a slash,
	// and a name within.
	Within
	// Grace: the client resolves host names once it has the resource, and can use it a
	// moment later. The need names nothing.
	Grace
)

// warming says whether the client waits for the needed resource each time it is sent this
// one, before it uses either.
func (n Need) warming() bool { return n.Kind == Warm || n.Kind == Covered }

// Requests says whether a client that has the resource requests the needed one.
func (n Need) Requests() bool { return n.warming() || n.Kind == Once || n.Kind == Within }

// TrafficTo returns the needs of a resource that sends traffic to clusters.
func TrafficTo(clusters []string) []Need {
	if len(clusters) == 0 {
		return nil
	}
	out := make([]Need, len(clusters))
	for i, name := range clusters {
		out[i] = Need{ClusterType, name, Traffic}
	}
	return out
}
