package etcdtest

import (
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// Relay stands between clients and a server, on a unix socket of its own. It forwards
// the bytes of both sides, until a test has it hold them or cut connections.
type Relay struct {
	target   string
	listener net.Listener
	running  sync.WaitGroup

	mu    sync.Mutex // guards what follows, and is held while bytes are forwarded
	links []*link
}

// link is a client's connection to the relay, and the relay's connection to the server
// for it.
type link struct {
	client, server net.Conn
	// requests and answers are the bytes received and not forwarded yet. They are
	// forwarded at once unless they are held.
	requests, answers         []byte
	holdRequests, holdAnswers bool
	// orphaned says that the client is gone, and the server's connection stays open.
	orphaned bool
}

// NewRelay returns a relay to an endpoint from Listen.
func NewRelay(t testing.TB, endpoint string) *Relay {
	t.Helper()
	listener, err := net.Listen("unix", filepath.Join(directory(t), "r"))
	if err != nil {
		t.Fatal(err)
	}
	r := &Relay{target: strings.TrimPrefix(endpoint, "unix://"), listener: listener}
	r.running.Go(r.accept)
	t.Cleanup(func() {
		_ = listener.Close()
		r.Cut()
		r.running.Wait()
	})
	return r
}

// Endpoint returns the endpoint of the relay, for Dial.
func (r *Relay) Endpoint() string { return "unix://" + r.listener.Addr().String() }

// HoldRequests holds what the present clients send from now on. Requests of clients that
// connect later are forwarded.
func (r *Relay) HoldRequests() { r.each(func(l *link) { l.holdRequests = true }) }

// HoldAnswers holds what the server sends to the present clients.
func (r *Relay) HoldAnswers() { r.each(func(l *link) { l.holdAnswers = true }) }

// Held says whether enough returns true for the held requests of some link.
func (r *Relay) Held(enough func(requests []byte) bool) (held bool) {
	r.each(func(l *link) { held = held || l.holdRequests && enough(l.requests) })
	return held
}

// Release forwards all that is held, and what follows.
func (r *Relay) Release() {
	r.each(func(l *link) {
		l.holdRequests, l.holdAnswers = false, false
		l.flush()
	})
}

// Orphan cuts off the present clients but not their connections to the server. Release
// still forwards the requests that the relay holds, whatever the clients do meanwhile.
func (r *Relay) Orphan() {
	r.each(func(l *link) {
		l.orphaned = true
		_ = l.client.Close()
	})
}

// Cut ends all connections and drops the bytes that the relay holds.
func (r *Relay) Cut() {
	r.each(func(l *link) {
		_ = l.client.Close()
		_ = l.server.Close()
	})
}

func (r *Relay) each(do func(*link)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, l := range r.links {
		do(l)
	}
}

func (r *Relay) accept() {
	for {
		client, err := r.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("unix", r.target)
		if err != nil {
			_ = client.Close()
			continue
		}
		l := &link{client: client, server: server}
		r.mu.Lock()
		r.links = append(r.links, l)
		r.mu.Unlock()
		r.running.Go(func() {
			r.readAll(client, func(b []byte) { l.requests = append(l.requests, b...); l.flush() }, l.clientGone)
		})
		r.running.Go(func() {
			r.readAll(server, func(b []byte) { l.answers = append(l.answers, b...); l.flush() }, l.serverGone)
		})
	}
}

// readAll reads a connection until it ends. It calls take with the bytes and gone at the
// end, both under mu.
func (r *Relay) readAll(from net.Conn, take func([]byte), gone func()) {
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		r.mu.Lock()
		take(buffer[:n])
		if err != nil {
			gone()
		}
		r.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// flush forwards what is not held. It ignores write errors: that side is gone.
func (l *link) flush() {
	if !l.holdRequests {
		_, _ = l.server.Write(l.requests)
		l.requests = nil
	}
	if !l.holdAnswers {
		_, _ = l.client.Write(l.answers)
		l.answers = nil
	}
}

func (l *link) clientGone() {
	_ = l.client.Close()
	if !l.orphaned {
		_ = l.server.Close()
	}
}

func (l *link) serverGone() {
	_ = l.server.Close()
	_ = l.client.Close()
}
