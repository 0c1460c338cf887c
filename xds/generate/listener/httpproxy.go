package listener

import (
	"google.golang.org/protobuf/proto"

	"github.com/portolan-mesh/portolan/xds/envoy"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/names"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// httpProxyNames names the listener that applications call as their HTTP proxy, on the
// port that the proxy or the mesh configuration says.
func httpProxyNames(v *mesh.View, yield func(string) bool) bool {
	port := v.HTTPProxyPort()
	return port == 0 || yield(names.Listener(loopback(v.Shape()), uint32(port)))
}

// isHTTPProxy says whether that listener has a name, and port.
func isHTTPProxy(v *mesh.View, name string, port int) bool {
	return name == names.Listener(loopback(v.Shape()), uint32(port)) && v.IsHTTPProxyAt(port)
}

// httpProxy makes that listener. Its requests name the host and the port that they want.
func httpProxy(v *mesh.View, name string, port int) (proto.Message, []resource.Need, error) {
	c := chains{view: v, name: name, whole: true}
	c.http(names.HTTPProxyRouteConfig, envoy.FilterChainOptions{})
	return c.listener(envoy.ListenerOptions{Host: loopback(v.Shape()), Port: uint32(port)})
}
