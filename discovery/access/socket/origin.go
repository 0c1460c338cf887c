package socket

import (
	"net"
	"net/http"
	"net/netip"
)

// A server that refuses a call over TCP may offer its socket: for a path that is for its own user,
// or to a client on its machine without a credential. It names the socket in SocketHeader, escaped
// as in a URL, and itself in ServerHeader. A client that calls the socket may send ServerHeader
// back, and any other server refuses it.
const (
	SocketHeader = "Portolan-Socket"
	ServerHeader = "Portolan-Server"
)

// OverSocket says whether a request came over a unix socket.
func OverSocket(r *http.Request) bool {
	local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	return ok && local.Network() == "unix"
}

// FromThisMachine says whether the peer is on loopback or a unix socket.
func FromThisMachine(r *http.Request) bool {
	if OverSocket(r) {
		return true
	}
	at, err := netip.ParseAddrPort(r.RemoteAddr)
	return err == nil && at.Addr().Unmap().IsLoopback()
}
