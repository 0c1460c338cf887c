package protocol_test

import (
	"slices"
	"testing"

	"github.com/portolan-mesh/portolan/xds/delivery/nameset"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/delivery/protocoltest"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// TestConformance runs the conformance suite on subscriptions.
func TestConformance(t *testing.T) {
	t.Parallel()
	protocoltest.Run(t, protocoltest.Aggregated, func(tb testing.TB) protocoltest.Server {
		return &testServer{tb: tb, offered: map[string]resource.Set{}, names: nameset.NewTable()}
	})
}

// testServer is the least server around subscriptions.
type testServer struct {
	tb       testing.TB
	offered  map[string]resource.Set
	revision int64
	names    *nameset.Table
	conns    []*testConn
}

func (s *testServer) Offer(typeURL string, content map[string]string) {
	var set resource.Set
	for name, c := range content {
		r, err := protocoltest.Resource(typeURL, name, c)
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

func (s *testServer) Connect(variant protocol.Variant, _ string) protocoltest.Conn {
	c := &testConn{server: s, variant: variant, subscriptions: map[string]*protocol.Subscription{}}
	for _, t := range protocoltest.Types() {
		c.add(t)
	}
	c.offer()
	s.conns = append(s.conns, c)
	return c
}

// testConn is one stream, with a subscription for each type.
type testConn struct {
	server        *testServer
	variant       protocol.Variant
	order         []string
	subscriptions map[string]*protocol.Subscription
	sent          []*protocoltest.Reply
}

func (c *testConn) add(t protocol.Type) {
	t.Names = c.server.names
	c.subscriptions[t.URL] = protocol.New(t, c.variant)
	c.order = append(c.order, t.URL)
}

func (c *testConn) offer() {
	for typeURL, s := range c.subscriptions {
		s.SetDesired(c.server.offered[typeURL], c.server.revision)
	}
}

func (c *testConn) Send(typeURL string, q protocol.Request) {
	if c.subscriptions[typeURL] == nil {
		c.add(protocol.Type{URL: typeURL})
	}
	c.subscriptions[typeURL].Request(q)
	c.flush()
}

func (c *testConn) flush() {
	if c.subscriptions == nil {
		return // closed
	}
	for _, typeURL := range c.order {
		c.next(typeURL, protocol.Additions())
	}
	for _, typeURL := range c.order {
		c.next(typeURL, protocoltest.Everything())
	}
}

func (c *testConn) next(typeURL string, allow protocol.Allow) {
	r, ok := c.subscriptions[typeURL].Next(allow)
	if !ok {
		return
	}
	reply := &protocoltest.Reply{TypeURL: typeURL, Nonce: r.Nonce, Version: r.Version, Removed: r.Removed}
	for _, x := range r.Resources {
		name, content, err := protocoltest.Content(x.Body.GetValue())
		if err != nil {
			c.server.tb.Fatal(err)
		}
		reply.Resources = append(reply.Resources, protocoltest.Received{Name: name, Version: x.Version, Content: content})
	}
	c.sent = append(c.sent, reply)
	if typeURL == protocoltest.Clusters {
		for _, x := range r.Changed {
			c.subscriptions[protocoltest.Endpoints].Resend(slices.Collect(protocoltest.Children(x))...)
		}
	}
}

func (c *testConn) Receive() *protocoltest.Reply {
	c.server.tb.Helper()
	if len(c.sent) == 0 {
		c.server.tb.Fatal("there is no response")
	}
	r := c.sent[0]
	c.sent = c.sent[1:]
	return r
}

func (c *testConn) Quiet() {
	c.server.tb.Helper()
	if len(c.sent) > 0 {
		c.server.tb.Fatalf("there is a response of %s that nothing asked for: %+v", c.sent[0].TypeURL, c.sent[0])
	}
}

func (c *testConn) Close() { c.subscriptions = nil }
