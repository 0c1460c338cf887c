package mirror_test

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// relay forwards connections to a unix socket. It can cut them all, hold their bytes,
// and swallow them.
type relay struct {
	listener net.Listener
	running  sync.WaitGroup

	mu     sync.Mutex // guards the fields below
	target string     // empty while cut
	conns  map[net.Conn]struct{}
	held   chan struct{} // closed when the held bytes may go on; nil while none are held
	hole   bool
}

// newRelay returns a relay to an endpoint of the form unix:///path.
func newRelay(t testing.TB, endpoint string) *relay {
	t.Helper()
	dir, err := os.MkdirTemp("", "relay")
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{listener: listener, conns: map[net.Conn]struct{}{}}
	r.lead(endpoint)
	r.running.Go(r.accept)
	t.Cleanup(func() {
		_ = listener.Close()
		r.cut()
		r.running.Wait()
		_ = os.RemoveAll(dir)
	})
	return r
}

func (r *relay) endpoint() string { return "unix://" + r.listener.Addr().String() }

// cut closes all connections and lets no new one through.
func (r *relay) cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.target = ""
	for c := range r.conns {
		_ = c.Close()
	}
	clear(r.conns)
	r.free()
}

// lead forwards new connections to an endpoint; old ones stay.
func (r *relay) lead(endpoint string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.target = strings.TrimPrefix(endpoint, "unix://")
	r.hole = false
	r.free()
}

// hold holds all bytes until the next lead or cut.
func (r *relay) hold() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.held == nil {
		r.held = make(chan struct{})
	}
}

// swallow discards all bytes, also on later connections, until the next lead.
func (r *relay) swallow() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hole = true
}

func (r *relay) free() {
	if r.held != nil {
		close(r.held)
		r.held = nil
	}
}

func (r *relay) accept() {
	for {
		in, err := r.listener.Accept()
		if err != nil {
			return
		}
		if out := r.connect(in); out != nil {
			r.running.Go(func() { r.pass(in, out) })
			r.running.Go(func() { r.pass(out, in) })
		}
	}
}

// connect returns the connection to the server for in, nil while the relay is cut.
func (r *relay) connect(in net.Conn) net.Conn {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.target != "" {
		if out, err := net.Dial("unix", r.target); err == nil {
			r.conns[in], r.conns[out] = struct{}{}, struct{}{}
			return out
		}
	}
	_ = in.Close()
	return nil
}

func (r *relay) pass(from, to net.Conn) {
	defer func() { _ = from.Close(); _ = to.Close() }()
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		r.mu.Lock()
		held, hole := r.held, r.hole
		r.mu.Unlock()
		if held != nil {
			<-held
		}
		if hole {
			continue
		}
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
	}
}
