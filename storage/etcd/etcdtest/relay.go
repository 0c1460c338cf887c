package etcdtest

import (
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// Relay stands between clients and a server, on a unix socket of its own. It
// passes on what either says, until it is told to keep it or to cut them off.
type Relay struct {
	target   string
	listener net.Listener
	running  sync.WaitGroup

	mu    sync.Mutex // guards what follows, and is held while bytes are passed on
	links []*link
}

// link is one connection of a client, and the one to the server for it.
type link struct {
	client, server net.Conn
	// requests and answers are what was said and not passed on; they are passed
	// on at once unless they are held.
	requests, answers         []byte
	holdRequests, holdAnswers bool
	// orphaned says that the client is gone and the server must not know.
	orphaned bool
}

// NewRelay returns a relay to an endpoint that Listen returned.
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

// Endpoint is what to Dial.
func (r *Relay) Endpoint() string { return "unix://" + r.listener.Addr().String() }

// HoldRequests keeps what the clients of this moment say from now on. Clients
// that connect later are heard.
func (r *Relay) HoldRequests() { r.each(func(l *link) { l.holdRequests = true }) }

// HoldAnswers keeps what the server says to the clients of this moment.
func (r *Relay) HoldAnswers() { r.each(func(l *link) { l.holdAnswers = true }) }

// Held says whether the requests held are such that enough is true for some
// link.
func (r *Relay) Held(enough func(requests []byte) bool) (held bool) {
	r.each(func(l *link) { held = held || l.holdRequests && enough(l.requests) })
	return held
}

// Release passes on all that was held, and what follows.
func (r *Relay) Release() {
	r.each(func(l *link) {
		l.holdRequests, l.holdAnswers = false, false
		l.flush()
	})
}

// Orphan cuts off the present clients and tells the server nothing. Release passes on what
// they sent and the relay holds, whatever they do meanwhile.
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
			r.hear(client, func(b []byte) { l.requests = append(l.requests, b...); l.flush() }, l.clientGone)
		})
		r.running.Go(func() {
			r.hear(server, func(b []byte) { l.answers = append(l.answers, b...); l.flush() }, l.serverGone)
		})
	}
}

// hear has all that a connection says taken under mu, and its end.
func (r *Relay) hear(from net.Conn, take func([]byte), gone func()) {
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

// flush passes on what is not held. Whoever cannot be written to is gone.
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
