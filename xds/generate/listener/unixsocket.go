package listener

import (
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/portolan-mesh/portolan/xds/envoy"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/names"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// socketOf returns the egress listener with a Unix domain socket whose listener has this
// name.
func socketOf(v *mesh.View, name string) (mesh.EgressListener, bool) {
	for _, l := range v.Egress() {
		if l.Socket != "" && names.Listener(l.Socket, 0) == name {
			return l, true
		}
	}
	return mesh.EgressListener{}, false
}

// sockets is a list of egress listeners with Unix domain sockets.
type sockets []mesh.EgressListener

// byteSockets returns the sockets that do not route by HTTP.
func byteSockets(v *mesh.View) sockets {
	return slices.DeleteFunc(v.Egress(), func(l mesh.EgressListener) bool { return l.Socket == "" || l.TakesHTTP() })
}

// names yields the listeners whose egress listener names a host: they may forward to its
// service.
func (s sockets) names(v *mesh.View, row *mesh.HostRow, yield func(string) bool) bool {
	for _, l := range s {
		if slices.Contains(v.NamedHosts(l), row.Hostname) && !yield(names.Listener(l.Socket, 0)) {
			return false
		}
	}
	return true
}

// socket makes the listener of a Unix domain socket. HTTP goes to the routes of the
// socket, everything else to one service. It is nil if there is no such service.
func socket(v *mesh.View, name string, l mesh.EgressListener) (proto.Message, []resource.Need, error) {
	c := chains{view: v, egress: l, name: name, whole: l.TakesHTTP()}
	if l.TakesHTTP() {
		c.http(l.Socket, envoy.FilterChainOptions{})
	} else {
		s, port := v.SocketService(l)
		if s == nil {
			return nil, nil, nil
		}
		c.port = port.Number
		c.addBytes(s)
		c.orPass()
	}
	return c.listener(envoy.ListenerOptions{Host: l.Socket})
}
