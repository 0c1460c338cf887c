package serve

import (
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
)

// apiSendBuffer is how many bytes the kernel keeps for a client of the config API that does
// not read. Without it that may be megabytes for each.
const apiSendBuffer = 256 << 10

// apiListener accepts a limited number of connections to the config API. It closes further
// ones at once, because a client that waits cannot tell why.
type apiListener struct {
	net.Listener
	limit  int64
	open   atomic.Int64
	logger *slog.Logger
}

// Accept implements net.Listener.
func (l *apiListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if l.open.Add(1) > l.limit {
			l.open.Add(-1)
			_ = c.Close()
			l.logger.Warn("closing a connection to the config API, as too many are open: raise --max-api-connections if they are meant", "limit", l.limit)
			continue
		}
		if tcp, ok := c.(*net.TCPConn); ok {
			_ = tcp.SetWriteBuffer(apiSendBuffer) // if this fails, the system's default remains
		}
		return &apiConn{Conn: c, closed: sync.OnceFunc(func() { l.open.Add(-1) })}, nil
	}
}

// apiConn is a connection that counts until it is closed.
type apiConn struct {
	net.Conn
	closed func()
}

// Close implements net.Conn.
func (c *apiConn) Close() error {
	c.closed()
	return c.Conn.Close()
}
