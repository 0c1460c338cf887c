package processtest

import (
	"net"
	"slices"
	"sync"
	"testing"
)

// Link forwards connections to a TCP address. It can cut them, hold back their bytes, or
// swallow them: for all clients, or by origin.
type Link struct {
	listener net.Listener
	targets  []string // guarded by mu
	origin   func(first []byte) string
	running  sync.WaitGroup

	mu    sync.Mutex // guards the fields below
	conns map[net.Conn]struct{}
	cut   bool
	from  map[string]bool // origins that are cut
	held  chan struct{}   // closed when what is held may go on; nil while nothing is
	heard bool            // while held: what clients say is passed on
	hole  bool
}

// NewLink returns a link to an address; nothing has to listen there yet. origin finds the
// origin of a connection in its first bytes; nil finds none.
func NewLink(t testing.TB, target string, origin func(first []byte) string) *Link {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &Link{listener: listener, targets: []string{target}, origin: origin, conns: map[net.Conn]struct{}{}, from: map[string]bool{}}
	l.running.Go(l.accept)
	t.Cleanup(func() {
		_ = listener.Close()
		l.Cut()
		l.running.Wait()
	})
	return l
}

// Also adds another address, which is used when nothing listens on those before.
func (l *Link) Also(target string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.targets = append(l.targets, target)
}

// dial connects to the first address on which something listens.
func (l *Link) dial() (out net.Conn, err error) {
	l.mu.Lock()
	targets := slices.Clone(l.targets)
	l.mu.Unlock()
	for _, target := range targets {
		if out, err = net.Dial("tcp", target); err == nil {
			return out, nil
		}
	}
	return nil, err
}

// Address is the address of the link for clients.
func (l *Link) Address() string { return l.listener.Addr().String() }

// Cut closes all connections and refuses new ones, until Mend.
func (l *Link) Cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut = true
	l.drop()
}

// CutFrom is Cut for connections of one origin. Others are closed too, but may reconnect.
func (l *Link) CutFrom(origin string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.from[origin] = true
	l.drop()
}

// Hold holds all bytes back until Mend or Cut.
func (l *Link) Hold() { l.hold(false) }

// HoldAnswers is Hold for the server's bytes only: it still receives those of clients.
func (l *Link) HoldAnswers() { l.hold(true) }

func (l *Link) hold(heard bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.heard = heard
	if l.held == nil {
		l.held = make(chan struct{})
	}
}

// Swallow drops all bytes, also of new connections, until Mend. Mend closes the connections
// that have lost some.
func (l *Link) Swallow() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hole = true
}

// Mend forwards everything again.
func (l *Link) Mend() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.hole {
		l.drop()
	}
	l.cut, l.hole = false, false
	clear(l.from)
	l.free()
}

func (l *Link) drop() {
	for c := range l.conns {
		_ = c.Close()
	}
	clear(l.conns)
	l.free()
}

func (l *Link) free() {
	if l.held != nil {
		close(l.held)
		l.held = nil
	}
}

func (l *Link) accept() {
	for {
		in, err := l.listener.Accept()
		if err != nil {
			return
		}
		l.running.Go(func() { l.serve(in) })
	}
}

// serve forwards one connection.
func (l *Link) serve(in net.Conn) {
	defer func() { _ = in.Close() }()
	if !l.keep(in) {
		return
	}
	defer l.forget(in)
	buffer := make([]byte, 64<<10)
	var first []byte
	if l.origin != nil {
		n, err := in.Read(buffer)
		if err != nil {
			return
		}
		if first = buffer[:n]; l.refuses(l.origin(first)) {
			return
		}
	}
	out, err := l.dial()
	if err != nil || !l.keep(out) {
		return
	}
	defer l.forget(out)
	var back sync.WaitGroup
	back.Go(func() { l.pass(out, in, make([]byte, 64<<10), true) })
	defer back.Wait()
	defer func() { _ = out.Close() }()
	if len(first) > 0 && !l.write(out, first, false) {
		return
	}
	l.pass(in, out, buffer, false)
}

func (l *Link) keep(c net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cut {
		_ = c.Close()
		return false
	}
	l.conns[c] = struct{}{}
	return true
}

func (l *Link) forget(c net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.conns, c)
	_ = c.Close()
}

func (l *Link) refuses(origin string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.from[origin]
}

func (l *Link) pass(from, to net.Conn, buffer []byte, answers bool) {
	defer func() { _ = from.Close(); _ = to.Close() }()
	for {
		n, err := from.Read(buffer)
		if err != nil || !l.write(to, buffer[:n], answers) {
			return
		}
	}
}

// write forwards some bytes once they are not held; false if that fails. answers means that
// they are the server's.
func (l *Link) write(to net.Conn, bytes []byte, answers bool) bool {
	l.mu.Lock()
	held, hole, passes := l.held, l.hole, l.heard && !answers
	l.mu.Unlock()
	if held != nil && !passes {
		<-held
	}
	if hole {
		return true
	}
	_, err := to.Write(bytes)
	return err == nil
}
