package secure

import (
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Conns finds open connections of one or more listeners by the client's address. The zero
// Conns has none.
type Conns struct {
	mu   sync.Mutex // guards open
	open map[string]*trackedConn
}

// Track returns a listener whose connections Conns finds.
func (l *Conns) Track(inner net.Listener) net.Listener { return tracking{inner, l} }

type tracking struct {
	net.Listener
	conns *Conns
}

// Accept implements net.Listener.
func (t tracking) Accept() (net.Conn, error) {
	c, err := t.Listener.Accept()
	if err != nil {
		return nil, err
	}
	tracked := &trackedConn{Conn: c, conns: t.conns}
	now := time.Now().UnixNano()
	tracked.lastRead.Store(now)
	tracked.lastWrite.Store(now)
	t.conns.mu.Lock()
	defer t.conns.mu.Unlock()
	if t.conns.open == nil {
		t.conns.open = map[string]*trackedConn{}
	}
	t.conns.open[c.RemoteAddr().String()] = tracked
	return tracked, nil
}

// HangUp closes the connection of a client, if it is open.
func (l *Conns) HangUp(remote net.Addr) {
	if c := l.find(remote); c != nil {
		_ = c.Close()
	}
}

func (l *Conns) find(remote net.Addr) *trackedConn {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.open[remote.String()]
}

// LastActivity returns when the server last read from a client, and when a write to the client
// last succeeded or failed; both are zero if the connection is not open.
func (l *Conns) LastActivity(remote net.Addr) (read, written time.Time) {
	c := l.find(remote)
	if c == nil {
		return time.Time{}, time.Time{}
	}
	return time.Unix(0, c.lastRead.Load()), time.Unix(0, c.lastWrite.Load())
}

// trackedConn is a connection that Conns finds.
type trackedConn struct {
	net.Conn
	conns               *Conns
	lastRead, lastWrite atomic.Int64 // Unix nanoseconds of the last read and write
}

// Read implements net.Conn.
func (c *trackedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.lastRead.Store(time.Now().UnixNano())
	return n, err
}

// Write implements net.Conn.
func (c *trackedConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.lastWrite.Store(time.Now().UnixNano())
	return n, err
}

// Close implements net.Conn.
func (c *trackedConn) Close() error {
	c.conns.mu.Lock()
	if key := c.RemoteAddr().String(); c.conns.open[key] == c {
		delete(c.conns.open, key)
	}
	c.conns.mu.Unlock()
	return c.Conn.Close()
}
