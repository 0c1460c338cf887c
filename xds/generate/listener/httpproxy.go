package listener

import (
	"google.golang.org/protobuf/proto"

	"github.com/portolan-mesh/portolan/xds/envoy"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// httpProxyName names the listener that applications call as their HTTP proxy, on the
// port that the mesh configuration says; empty for none.
func httpProxyName(v *mesh.View) string {
	port := v.Mesh(mesh.ProxyHTTPPort).GetProxyHttpPort()
	if port <= 0 {
		return ""
	}
	return envoy.ListenerName(loopback(v.Shape()), uint32(port))
}

func httpProxyNames(v *mesh.View, yield func(string) bool) bool {
	name := httpProxyName(v)
	return name == "" || yield(name)
}

// httpProxy makes that listener. Its requests name the host and the port that they want.
func httpProxy(v *mesh.View, name string) (proto.Message, []resource.Need, error) {
	c := chains{view: v, name: name, whole: true}
	c.http(envoy.HTTPProxyRouteConfigName, envoy.FilterChainOptions{})
	return c.listener(envoy.ListenerOptions{
		Host: loopback(v.Shape()), Port: uint32(v.Mesh(mesh.ProxyHTTPPort).GetProxyHttpPort()),
	})
}
