package listener

import (
	"google.golang.org/protobuf/proto"

	"github.com/portolan-mesh/portolan/xds/envoy"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/names"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// httpProxyNames yields the listener that applications use as their HTTP proxy, on the
// port in the proxy's metadata or the mesh configuration.
func httpProxyNames(v *mesh.View, yield func(string) bool) bool {
	port := v.HTTPProxyPort()
	return port == 0 || yield(names.Listener(loopback(v.Shape()), uint32(port)))
}

// isHTTPProxy says whether the HTTP proxy listener has this name and port.
func isHTTPProxy(v *mesh.View, name string, port int) bool {
	return name == names.Listener(loopback(v.Shape()), uint32(port)) && v.IsHTTPProxyAt(port)
}

// httpProxy makes the HTTP proxy listener. Its requests name the host and port that they
// want.
func httpProxy(v *mesh.View, name string, port int) (proto.Message, []resource.Need, error) {
	c := chains{view: v, name: name, whole: true}
	c.http(names.HTTPProxyRouteConfig, envoy.FilterChainOptions{})
	return c.listener(envoy.ListenerOptions{Host: loopback(v.Shape()), MoreHosts: moreLoopbacks(v.Shape()), Port: uint32(port)})
}
