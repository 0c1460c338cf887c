package protocoltest

import (
	"maps"
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"

	"github.com/portolan-mesh/portolan/xds/delivery/nameset"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
)

func parse(content []string) map[string]string {
	out := map[string]string{}
	for _, c := range content {
		name, value, _ := strings.Cut(c, "=")
		out[name] = value
	}
	return out
}

// client makes requests as the protocol requires in its variant, and keeps the state that
// it needs for that.
type client struct {
	*bench
	conn  Conn
	types map[string]*state
}

// state is what a client knows of one type.
type state struct {
	asked   bool
	names   map[string]bool
	has     map[string]string // versions, delta only
	version string            // of the last response taken
	nonce   string            // of the last response
}

// connect opens a stream for a type. If the server has aggregated streams, it opens one
// for all types.
func (b *bench) connect(typeURL string) *client {
	b.t.Helper()
	if b.mode == Aggregated {
		typeURL = ""
	}
	return &client{bench: b, conn: b.server.Connect(b.variant, typeURL), types: map[string]*state{}}
}

// again ends the stream and opens another, on which the client will state what it has. It
// has requested nothing there yet.
func (c *client) again(typeURL string) *client {
	c.t.Helper()
	c.conn.Close()
	next := c.connect(typeURL)
	for url, was := range c.types {
		next.types[url] = &state{names: map[string]bool{}, has: was.has, version: was.version}
	}
	return next
}

func (c *client) typ(typeURL string) *state {
	if c.types[typeURL] == nil {
		c.types[typeURL] = &state{names: map[string]bool{}, has: map[string]string{}}
	}
	return c.types[typeURL]
}

// ask subscribes to names; without names, to all resources.
func (c *client) ask(typeURL string, names ...string) {
	c.t.Helper()
	c.change(typeURL, names, nil)
}

// drop unsubscribes from names.
func (c *client) drop(typeURL string, names ...string) {
	c.t.Helper()
	c.change(typeURL, nil, names)
}

func (c *client) change(typeURL string, more, fewer []string) {
	c.t.Helper()
	s := c.typ(typeURL)
	for _, name := range more {
		s.names[name] = true
	}
	for _, name := range fewer {
		delete(s.names, name)
		delete(s.has, name)
	}
	q := protocol.Request{Subscribe: NameSet(more...), Unsubscribe: NameSet(fewer...), Names: NameSet(slices.Sorted(maps.Keys(s.names))...), Version: s.version}
	if !s.asked {
		s.asked, q.Initial = true, Versions(s.has)
	} else if !c.delta() {
		q.Nonce = s.nonce
	}
	c.say(typeURL, q)
}

// say sends the fields of a request that the variant has.
func (c *client) say(typeURL string, q protocol.Request) {
	c.t.Helper()
	if c.delta() {
		q.Names, q.Version = nameset.Set{}, ""
	} else {
		q.Subscribe, q.Unsubscribe, q.Initial = nameset.Set{}, nameset.Set{}, nil
	}
	c.conn.Send(typeURL, q)
}

// expect waits for the next response. It must be of a type and have exactly the content
// want: "a=1" is a resource and its content, "-a" a removed one.
func (c *client) expect(typeURL string, want ...string) *Reply {
	c.t.Helper()
	r := c.conn.Receive()
	got := []string{}
	for _, x := range r.Resources {
		got = append(got, x.Name+"="+x.Content)
	}
	slices.Sort(got)
	for _, name := range r.Removed {
		got = append(got, "-"+name)
	}
	if d := cmp.Diff(append([]string{}, want...), got); r.TypeURL != typeURL || d != "" {
		c.t.Fatalf("a response of %s, not of %s (-want +got):\n%s", r.TypeURL, typeURL, d)
	}
	c.typ(typeURL).nonce = r.Nonce
	return r
}

func (c *client) ack(r *Reply) {
	c.t.Helper()
	s := c.typ(r.TypeURL)
	for _, x := range r.Resources {
		s.has[x.Name] = x.Version
	}
	for _, name := range r.Removed {
		delete(s.has, name)
	}
	s.version = r.Version
	c.answer(r.TypeURL, r.Nonce)
}

// answer sends an acknowledgement with any nonce.
func (c *client) answer(typeURL, nonce string) {
	c.t.Helper()
	s := c.typ(typeURL)
	c.say(typeURL, protocol.Request{Nonce: nonce, Version: s.version, Names: NameSet(slices.Sorted(maps.Keys(s.names))...)})
}

func (c *client) nack(r *Reply) {
	c.t.Helper()
	s := c.typ(r.TypeURL)
	c.say(r.TypeURL, protocol.Request{
		Nonce: r.Nonce, Version: s.version, Names: NameSet(slices.Sorted(maps.Keys(s.names))...), Rejected: true, Message: "not this",
	})
}

// take expects a response and acknowledges it.
func (c *client) take(typeURL string, want ...string) {
	c.t.Helper()
	c.ack(c.expect(typeURL, want...))
}

// takeIn is take with the content that is expected in each variant.
func (c *client) takeIn(typeURL string, delta, world []string) {
	c.t.Helper()
	if c.delta() {
		c.take(typeURL, delta...)
	} else {
		c.take(typeURL, world...)
	}
}
