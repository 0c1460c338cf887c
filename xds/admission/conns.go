package admission

import (
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Conns is a listener that finds its accepted connections by the address of the client.
type Conns struct {
	net.Listener

	mu   sync.Mutex // guards open
	open map[string]*trackedConn
}

// NewConns wraps a listener.
func NewConns(l net.Listener) *Conns { return &Conns{Listener: l, open: map[string]*trackedConn{}} }

// Accept implements net.Listener.
func (l *Conns) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	tracked := &trackedConn{Conn: c, listener: l}
	now := time.Now().UnixNano()
	tracked.lastRead.Store(now)
	tracked.lastWrite.Store(now)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open[c.RemoteAddr().String()] = tracked
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

// LastActivity returns when the server last read something from a client, and when the
// connection last took something that the server wrote; both zero if the connection is
// not open.
func (l *Conns) LastActivity(remote net.Addr) (read, written time.Time) {
	c := l.find(remote)
	if c == nil {
		return time.Time{}, time.Time{}
	}
	return time.Unix(0, c.lastRead.Load()), time.Unix(0, c.lastWrite.Load())
}

// trackedConn is a connection that Conns knows.
type trackedConn struct {
	net.Conn
	listener            *Conns
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
	c.listener.mu.Lock()
	if key := c.RemoteAddr().String(); c.listener.open[key] == c {
		delete(c.listener.open, key)
	}
	c.listener.mu.Unlock()
	return c.Conn.Close()
}
