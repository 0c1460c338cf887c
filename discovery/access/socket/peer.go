package socket

import (
	"context"
	"net"
)

// Peer is the process at the other end of a connection over a socket.
type Peer struct {
	UID int
}

type peerKey struct{}

// WithPeer is the ConnContext of an http.Server: it adds the peer process to the context
// of requests over a unix socket, if the system reveals it.
func WithPeer(ctx context.Context, c net.Conn) context.Context {
	unix, ok := c.(*net.UnixConn)
	if !ok {
		return ctx
	}
	peer, err := peerOf(unix)
	if err != nil {
		return ctx
	}
	return context.WithValue(ctx, peerKey{}, peer)
}

// PeerOf returns who sends a request over a socket; false if the system does not reveal
// it.
func PeerOf(ctx context.Context) (Peer, bool) {
	peer, ok := ctx.Value(peerKey{}).(Peer)
	return peer, ok
}
