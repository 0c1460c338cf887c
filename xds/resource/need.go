package resource

// The types that Portolan serves, in the order in which they are sent.
const (
	ClusterType     = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
	EndpointType    = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
	ListenerType    = "type.googleapis.com/envoy.config.listener.v3.Listener"
	RouteType       = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration"
	VirtualHostType = "type.googleapis.com/envoy.config.route.v3.VirtualHost"
	SecretType      = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret"
)

// ConfigType is the type of the messages that carry objects. The types that other control
// planes request are the kinds of these objects.
const ConfigType = "type.googleapis.com/istio.mcp.v1alpha1.Resource"

// Need is another resource, without which a client cannot use a resource. A server that
// does not serve the type does not wait for it.
type Need struct {
	TypeURL, Name string
	Kind          NeedKind
}

// NeedKind says what a need means for the order of sending.
type NeedKind uint8

const (
	// Warm: the client puts the resource into use when it has the needed one, which is
	// sent again with it: the routes of a listener.
	Warm NeedKind = iota + 1
	// Covered is Warm, and the version of the needed resource covers the version of
	// this one: the endpoints of a cluster.
	Covered
	// Secret: the client puts the resource into use when it has the needed one, which is
	// not sent again with it.
	Secret
	// Traffic: the resource sends traffic to the needed one, which is usable before the
	// resource is sent, and withdrawn after it.
	Traffic
	// Within: the needed resources live in this one, and the client forgets them with it.
	// Their names are Name, a slash, and a name within: the virtual hosts of a route
	// configuration.
	Within
	// Grace: the client takes a moment after it has the resource, as it resolves host
	// names. It names nothing.
	Grace
)

// warming says whether the client sets the needed resource up with this one, before it
// puts either into use.
func (n Need) warming() bool { return n.Kind == Warm || n.Kind == Covered }

// Requests says whether a client that has the resource requests the needed one.
func (n Need) Requests() bool { return n.warming() || n.Kind == Secret || n.Kind == Within }

// TrafficTo are the needs of a resource that sends traffic to clusters.
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
