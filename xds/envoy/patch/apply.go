package patch

import (
	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	networking "istio.io/api/networking/v1alpha3"
)

// Cluster applies the patches of CLUSTER. It returns nil if one removes the cluster.
func Cluster(m *clusterv3.Cluster, at Place, patches []*Patch) (*clusterv3.Cluster, []Result) {
	return m, nil
}

// Listener applies the patches of LISTENER and of all that is in a listener. It returns nil if one
// removes the listener. It reads a connection manager only if a patch of HTTP_FILTER matches.
func Listener(m *listenerv3.Listener, at Place, patches []*Patch) (*listenerv3.Listener, []Result) {
	return m, nil
}

// RouteConfiguration applies the patches of ROUTE_CONFIGURATION, and those of VIRTUAL_HOST and
// HTTP_ROUTE to the virtual hosts in the message. It adds virtual hosts unless they are resources of
// their own (VHDS): AddedVirtualHosts returns those.
func RouteConfiguration(m *routev3.RouteConfiguration, at Place, patches []*Patch) (*routev3.RouteConfiguration, []Result) {
	return m, nil
}

// VirtualHost applies the patches of VIRTUAL_HOST and HTTP_ROUTE to a virtual host that is a
// resource of its own: at.Routes names its route configuration. It returns nil if one removes the
// virtual host.
func VirtualHost(m *routev3.VirtualHost, at Place, patches []*Patch) (*routev3.VirtualHost, []Result) {
	return m, nil
}

// AddedClusters returns the clusters that patches add in a context, in order. Of several with a name
// the first is added. Callers have to see that no generated cluster has the name.
func AddedClusters(in networking.EnvoyFilter_PatchContext, patches []*Patch) ([]*clusterv3.Cluster, []Result) {
	return nil, nil
}

// AddedListeners is AddedClusters for listeners.
func AddedListeners(in networking.EnvoyFilter_PatchContext, patches []*Patch) ([]*listenerv3.Listener, []Result) {
	return nil, nil
}

// AddedVirtualHosts returns the virtual hosts that patches add to the route configuration at.Routes,
// whose virtual hosts are resources of their own.
func AddedVirtualHosts(at Place, patches []*Patch) ([]*routev3.VirtualHost, []Result) {
	return nil, nil
}

// Extensions returns the configurations of filters that patches of EXTENSION_CONFIG make resources
// of their own (ECDS), in order and each name once: the first ADD of a name counts, until a REPLACE
// of it.
func Extensions(patches []*Patch) ([]*corev3.TypedExtensionConfig, []Result) {
	return nil, nil
}

// Bootstrap merges the patches of BOOTSTRAP into what a proxy starts with.
func Bootstrap(m *bootstrapv3.Bootstrap, patches []*Patch) (*bootstrapv3.Bootstrap, []Result) {
	return m, nil
}
