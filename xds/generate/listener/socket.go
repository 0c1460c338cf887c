package listener

import (
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/portolan-mesh/portolan/xds/envoy"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/names"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// socketOf is the egress listener with a Unix domain socket that has a listener of a
// name.
func socketOf(v *mesh.View, name string) (mesh.EgressListener, bool) {
	for _, l := range v.Egress() {
		if l.Socket != "" && names.Listener(l.Socket, 0) == name {
			return l, true
		}
	}
	return mesh.EgressListener{}, false
}

// sockets are egress listeners with Unix domain sockets.
type sockets []mesh.EgressListener

// byteSockets are those that do not route by HTTP.
func byteSockets(v *mesh.View) sockets {
	return slices.DeleteFunc(v.Egress(), func(l mesh.EgressListener) bool { return l.Socket == "" || l.TakesHTTP() })
}

// names returns the names of the listeners that name a host: the service of one may be
// theirs.
func (s sockets) names(v *mesh.View, row *mesh.HostRow, yield func(string) bool) bool {
	for _, l := range s {
		if slices.Contains(v.NamedHosts(l), row.Hostname) && !yield(names.Listener(l.Socket, 0)) {
			return false
		}
	}
	return true
}

// socket makes the listener of a Unix domain socket. Its HTTP goes to the routes of the
// socket. Everything else goes to one service; it is nil where there is none.
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
		c.bytes(s)
		c.orPass()
	}
	return c.listener(envoy.ListenerOptions{Host: l.Socket})
}
