package processtest

import (
	"net"
	"slices"
	"sync"
	"testing"
)

// Link passes connections on to a TCP address. It can cut them all, hold back
// what they carry, and swallow it; and all that by who connects.
type Link struct {
	listener net.Listener
	targets  []string // guarded by mu
	origin   func(first []byte) string
	running  sync.WaitGroup

	mu    sync.Mutex // guards the fields below
	conns map[net.Conn]struct{}
	cut   bool
	from  map[string]bool // origins that are cut off
	held  chan struct{}   // closed when what is held may go on; nil while nothing is
	heard bool            // while held: what clients say is passed on
	hole  bool
}

// NewLink returns a link to an address, which nothing has to listen on yet. Who
// connects is told by origin of the first bytes that come; nil tells nothing.
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

// Also names another address to pass connections on to, while nothing listens on
// those named before.
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

// Address is where to connect.
func (l *Link) Address() string { return l.listener.Addr().String() }

// Cut closes all connections and lets no new one through, until Mend.
func (l *Link) Cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut = true
	l.drop()
}

// CutFrom is Cut for those of one origin; others have to connect anew.
func (l *Link) CutFrom(origin string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.from[origin] = true
	l.drop()
}

// Hold keeps all bytes back until Mend or Cut.
func (l *Link) Hold() { l.hold(false) }

// HoldAnswers is Hold for what the server says: it hears its clients.
func (l *Link) HoldAnswers() { l.hold(true) }

func (l *Link) hold(heard bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.heard = heard
	if l.held == nil {
		l.held = make(chan struct{})
	}
}

// Swallow makes all bytes vanish, on connections to come too, until Mend: which
// closes those that have lost some.
func (l *Link) Swallow() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hole = true
}

// Mend passes everything again.
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

// serve passes one connection on.
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

// write passes some bytes on, once they are not held; false where that fails.
// answers are those of the server.
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
