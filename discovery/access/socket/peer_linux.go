package socket

import (
	"errors"
	"net"
	"syscall"
)

// CanTellPeers says whether the system reveals who is at the other end of a socket.
const CanTellPeers = true

// peerOf asks the system.
func peerOf(c *net.UnixConn) (Peer, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return Peer{}, err
	}
	var credentials *syscall.Ucred
	var failed error
	err = raw.Control(func(fd uintptr) {
		credentials, failed = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	})
	if err := errors.Join(err, failed); err != nil {
		return Peer{}, err
	}
	return Peer{UID: int(credentials.Uid)}, nil
}
