//go:build !linux

package socket

import (
	"errors"
	"net"
)

// CanTellPeers says whether the system reveals who is at the other end of a socket.
const CanTellPeers = false

func peerOf(*net.UnixConn) (Peer, error) { return Peer{}, errors.ErrUnsupported }
