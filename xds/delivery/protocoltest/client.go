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

// client says what it wants as the protocol has it, and knows what a client has
// to know for that.
type client struct {
	*bench
	conn  Conn
	types map[string]*state
}

// state is the state of one type.
type state struct {
	asked   bool
	names   map[string]bool
	has     map[string]string // versions, delta only
	version string            // of the last response taken
	nonce   string            // of the last response
}

// connect opens a stream for a type; where the server has aggregated streams it
// is one of all types.
func (b *bench) connect(typeURL string) *client {
	b.t.Helper()
	if b.mode == Aggregated {
		typeURL = ""
	}
	return &client{bench: b, conn: b.server.Connect(b.variant, typeURL), types: map[string]*state{}}
}

// again ends the stream and opens another, on which the client states what it
// has. It has asked for nothing on it.
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

// ask subscribes to names, or to all by naming none.
func (c *client) ask(typeURL string, names ...string) {
	c.t.Helper()
	c.change(typeURL, names, nil)
}

// drop gives names up.
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

// say sends what the variant has of a request.
func (c *client) say(typeURL string, q protocol.Request) {
	c.t.Helper()
	if c.delta() {
		q.Names, q.Version = nameset.Set{}, ""
	} else {
		q.Subscribe, q.Unsubscribe, q.Initial = nameset.Set{}, nameset.Set{}, nil
	}
	c.conn.Send(typeURL, q)
}

// expect waits for the next response, which has to be of a type and to have just
// this: "a=1" is a resource and its content, "-a" one that is removed.
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

// ack takes a response.
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

// answer acknowledges by a nonce, whatever it is.
func (c *client) answer(typeURL, nonce string) {
	c.t.Helper()
	s := c.typ(typeURL)
	c.say(typeURL, protocol.Request{Nonce: nonce, Version: s.version, Names: NameSet(slices.Sorted(maps.Keys(s.names))...)})
}

// nack refuses a response.
func (c *client) nack(r *Reply) {
	c.t.Helper()
	s := c.typ(r.TypeURL)
	c.say(r.TypeURL, protocol.Request{
		Nonce: r.Nonce, Version: s.version, Names: NameSet(slices.Sorted(maps.Keys(s.names))...), Rejected: true, Message: "not this",
	})
}

// take is expect and ack.
func (c *client) take(typeURL string, want ...string) {
	c.t.Helper()
	c.ack(c.expect(typeURL, want...))
}

// takeIn is take of what each variant has.
func (c *client) takeIn(typeURL string, delta, world []string) {
	c.t.Helper()
	if c.delta() {
		c.take(typeURL, delta...)
	} else {
		c.take(typeURL, world...)
	}
}
