package socket

import (
	"net"
	"net/http"
	"net/netip"
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
