package stream_test

import (
	"testing"

	"github.com/portolan-mesh/portolan/xds/resource"
	"github.com/portolan-mesh/portolan/xds/stream"
	"github.com/portolan-mesh/portolan/xds/stream/nameset"
	"github.com/portolan-mesh/portolan/xds/stream/streamtest"
)

// TestConformance holds sessions against the rules of the protocol.
func TestConformance(t *testing.T) {
	t.Parallel()
	streamtest.Run(t, streamtest.Aggregated, func(tb testing.TB) streamtest.Server {
		return &sessionServer{tb: tb, offered: map[string]resource.Set{}, names: nameset.NewTable()}
	})
}

// sessionServer is the least that sessions need around them to be a server.
type sessionServer struct {
	tb       testing.TB
	offered  map[string]resource.Set
	revision int64
	names    *nameset.Table
	conns    []*sessionConn
}

func (s *sessionServer) Offer(typeURL string, content map[string]string) {
	var set resource.Set
	for name, c := range content {
		r, err := streamtest.Resource(typeURL, name, c)
		if err != nil {
			s.tb.Fatal(err)
		}
		set = set.Set(name, r)
	}
	s.revision++
	s.offered[typeURL] = set
	for _, c := range s.conns {
		c.offer()
		c.flush()
	}
}

func (s *sessionServer) Connect(variant stream.Variant, _ string) streamtest.Conn {
	c := &sessionConn{server: s, variant: variant, sessions: map[string]*stream.Session{}}
	for _, t := range streamtest.Types() {
		c.add(t)
	}
	c.offer()
	s.conns = append(s.conns, c)
	return c
}

// sessionConn is one stream: a session for each type.
type sessionConn struct {
	server   *sessionServer
	variant  stream.Variant
	order    []string
	sessions map[string]*stream.Session
	sent     []*streamtest.Reply
}

func (c *sessionConn) add(t stream.Type) {
	t.Names = c.server.names
	c.sessions[t.URL] = stream.New(t, c.variant)
	c.order = append(c.order, t.URL)
}

func (c *sessionConn) offer() {
	for typeURL, s := range c.sessions {
		s.Offer(c.server.offered[typeURL], c.server.revision)
	}
}

func (c *sessionConn) Send(typeURL string, q stream.Request) {
	if c.sessions[typeURL] == nil {
		c.add(stream.Type{URL: typeURL})
	}
	c.sessions[typeURL].Request(q)
	c.flush()
}

func (c *sessionConn) flush() {
	if c.sessions == nil {
		return // closed
	}
	for _, typeURL := range c.order {
		c.next(typeURL, stream.Additions())
	}
	for _, typeURL := range c.order {
		c.next(typeURL, stream.All())
	}
}

func (c *sessionConn) next(typeURL string, allow stream.Allow) {
	r, ok := c.sessions[typeURL].Next(allow)
	if !ok {
		return
	}
	reply := &streamtest.Reply{TypeURL: typeURL, Nonce: r.Nonce, Version: r.Version, Removed: r.Removed}
	for _, x := range r.Resources {
		name, content, err := streamtest.Content(x.Body.GetValue())
		if err != nil {
			c.server.tb.Fatal(err)
		}
		reply.Resources = append(reply.Resources, streamtest.Received{Name: name, Version: x.Version, Content: content})
	}
	c.sent = append(c.sent, reply)
	if typeURL == streamtest.Clusters {
		for _, x := range r.Changed {
			c.sessions[streamtest.Endpoints].Resend(x.Children)
		}
	}
}

func (c *sessionConn) Receive() *streamtest.Reply {
	c.server.tb.Helper()
	if len(c.sent) == 0 {
		c.server.tb.Fatal("there is no response")
	}
	r := c.sent[0]
	c.sent = c.sent[1:]
	return r
}

func (c *sessionConn) Quiet() {
	c.server.tb.Helper()
	if len(c.sent) > 0 {
		c.server.tb.Fatalf("there is a response of %s that nothing asked for: %+v", c.sent[0].TypeURL, c.sent[0])
	}
}

func (c *sessionConn) Close() { c.sessions = nil }
