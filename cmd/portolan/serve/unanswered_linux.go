package serve

import (
	"errors"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// endUnanswered has the system end a connection of a listener when what was sent on it is not
// acknowledged for some time (tcp(7), TCP_USER_TIMEOUT).
func endUnanswered(within time.Duration) func(network, address string, c syscall.RawConn) error {
	return func(_, _ string, c syscall.RawConn) (err error) {
		failed := c.Control(func(fd uintptr) {
			err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(within/time.Millisecond))
		})
		return errors.Join(failed, err)
	}
}
