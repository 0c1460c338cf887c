package xds

import (
	"net"
	"sync"
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

// trackedConn is a connection that its listener knows.
type trackedConn struct {
	net.Conn
	of *Conns
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
