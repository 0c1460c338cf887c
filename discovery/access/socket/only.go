package socket

import (
	"context"
	"net"
	"os"
	"slices"
)

// Only returns a listener of a socket that accepts processes of this program's user, of root and
// of the given users. It closes all other connections. Where the system does not reveal who is at
// the other end, the mode of the socket decides alone.
func Only(l net.Listener, users ...int) net.Listener {
	return only{l, append([]int{0, os.Getuid()}, users...)}
}

type only struct {
	net.Listener
	users []int
}

// Accept implements net.Listener.
func (o only) Accept() (net.Conn, error) {
	for {
		c, err := o.Listener.Accept()
		if err != nil || !CanTellPeers {
			return c, err
		}
		if peer, ok := PeerOf(WithPeer(context.Background(), c)); ok && slices.Contains(o.users, peer.UID) {
			return c, nil
		}
		_ = c.Close()
	}
}
