package xds

import (
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Conns is a listener that finds the connections it accepted by the addresses of
// their clients.
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
	tracked := &trackedConn{Conn: c, of: l}
	now := time.Now().UnixNano()
	tracked.said.Store(now)
	tracked.took.Store(now)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open[c.RemoteAddr().String()] = tracked
	return tracked, nil
}

// HangUp closes the connection of a client, if it is open.
func (l *Conns) HangUp(remote net.Addr) {
	l.mu.Lock()
	c := l.open[remote.String()]
	l.mu.Unlock()
	if c != nil {
		_ = c.Close()
	}
}

// Moved is when something was last read that a client has said, and when its
// connection has last taken something that was written to it; zero where it is not
// open.
func (l *Conns) Moved(remote net.Addr) (said, took time.Time) {
	l.mu.Lock()
	c := l.open[remote.String()]
	l.mu.Unlock()
	if c == nil {
		return time.Time{}, time.Time{}
	}
	return time.Unix(0, c.said.Load()), time.Unix(0, c.took.Load())
}

// trackedConn is a connection that its listener knows.
type trackedConn struct {
	net.Conn
	of         *Conns
	said, took atomic.Int64 // in Unix nanoseconds
}

// Read implements net.Conn.
func (c *trackedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.said.Store(time.Now().UnixNano())
	return n, err
}

// Write implements net.Conn.
func (c *trackedConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.took.Store(time.Now().UnixNano())
	return n, err
}

// Close implements net.Conn.
func (c *trackedConn) Close() error {
	c.of.mu.Lock()
	if key := c.RemoteAddr().String(); c.of.open[key] == c {
		delete(c.of.open, key)
	}
	c.of.mu.Unlock()
	return c.Conn.Close()
}
