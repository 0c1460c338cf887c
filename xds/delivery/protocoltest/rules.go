package protocoltest

import (
	"slices"

	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
)

func rules() []rule {
	delta := protocol.Delta
	world := protocol.StateOfTheWorld
	return slices.Concat(asking(&delta), answering(&delta, &world), reconnecting(&delta), warming(&delta))
}

func one(s string) []string { return []string{s} }

// asking returns the rules of what requests get.
func asking(delta *protocol.Variant) []rule {
	return []rule{
		{name: "who names nothing at first is sent all", check: func(b *bench) {
			b.offer(Clusters, "a=1", "b=1")
			c := b.connect(Clusters)
			c.ask(Clusters)
			c.take(Clusters, "a=1", "b=1")
			c.conn.Quiet()
			b.offer(Clusters, "a=1", "b=2", "c=1")
			c.takeIn(Clusters, []string{"b=2", "c=1"}, []string{"a=1", "b=2", "c=1"})
			c.conn.Quiet()
		}},
		{name: "who names nothing is answered where there is nothing", check: func(b *bench) {
			b.offer(Clusters)
			c := b.connect(Clusters)
			c.ask(Clusters)
			c.take(Clusters)
			c.conn.Quiet()
			b.offer(Clusters, "a=1")
			c.take(Clusters, "a=1")
		}},
		{name: "who names some is sent those, of any type", check: func(b *bench) {
			for _, typeURL := range b.served() {
				b.offer(typeURL, "a=1", "b=1", "c=1")
				c := b.connect(typeURL)
				c.ask(typeURL, "a", "c")
				c.take(typeURL, "a=1", "c=1")
				b.offer(typeURL, "a=1", "b=2", "c=1")
				c.conn.Quiet()
				b.offer(typeURL, "a=2", "b=2", "c=1")
				if typeURL == Clusters {
					c.takeIn(typeURL, one("a=2"), []string{"a=2", "c=1"})
				} else {
					c.take(typeURL, "a=2")
				}
				c.conn.Quiet()
				c.conn.Close()
			}
		}},
		{name: "a name of a later request is answered", check: func(b *bench) {
			b.offer(Endpoints, "a=1", "b=1")
			c := b.connect(Endpoints)
			c.ask(Endpoints, "a")
			c.take(Endpoints, "a=1")
			c.ask(Endpoints, "b")
			c.take(Endpoints, "b=1")
			c.conn.Quiet()
		}},
		{name: "a name of a later request is answered though the client has it", only: delta, check: func(b *bench) {
			b.offer(Endpoints, "a=1", "b=1")
			c := b.connect(Endpoints)
			c.ask(Endpoints, "a", "b")
			c.take(Endpoints, "a=1", "b=1")
			c.ask(Endpoints, "a")
			c.take(Endpoints, "a=1")
		}},
		{name: "a name of a later request that also acknowledges is answered", only: delta, check: func(b *bench) {
			b.offer(Endpoints, "a=1", "b=1")
			c := b.connect(Endpoints)
			c.ask(Endpoints, "a")
			r := c.expect(Endpoints, "a=1")
			c.say(Endpoints, protocol.Request{Nonce: r.Nonce, Subscribe: NameSet(one("b")...)})
			c.take(Endpoints, "b=1")
		}},
		{name: "a name that is given up is sent no more", check: func(b *bench) {
			b.offer(Endpoints, "a=1", "b=1")
			c := b.connect(Endpoints)
			c.ask(Endpoints, "a", "b")
			c.take(Endpoints, "a=1", "b=1")
			c.drop(Endpoints, "a")
			c.ask(Endpoints, "c")
			c.take(Endpoints, "c=") // the server has heard it
			b.offer(Endpoints, "a=2", "b=1")
			c.conn.Quiet()
			b.offer(Endpoints, "a=2", "b=2")
			c.take(Endpoints, "b=2")
			c.ask(Endpoints, "a")
			c.take(Endpoints, "a=2")
		}},
		{name: "an unknown name is answered, and sent once it is there", check: func(b *bench) {
			for _, typeURL := range b.served() {
				b.offer(typeURL, "a=1")
				c := b.connect(typeURL)
				c.ask(typeURL, "x")
				if typeURL == Endpoints {
					c.take(typeURL, "x=")
				} else {
					c.takeIn(typeURL, one("-x"), nil)
				}
				c.conn.Quiet()
				b.offer(typeURL, "a=1", "x=1")
				c.take(typeURL, "x=1")
				c.conn.Close()
			}
		}},
		{name: "an unknown name of a later request is answered", check: func(b *bench) {
			b.offer(Secrets, "a=1")
			c := b.connect(Secrets)
			c.ask(Secrets, "a")
			c.take(Secrets, "a=1")
			c.ask(Secrets, "x")
			c.takeIn(Secrets, one("-x"), nil)
		}},
		{name: "all and a name are more than all", check: func(b *bench) {
			b.offer(Clusters, "a=1", "b=1")
			c := b.connect(Clusters)
			c.ask(Clusters, "*")
			c.take(Clusters, "a=1", "b=1")
			c.ask(Clusters, "a")
			c.takeIn(Clusters, one("a=1"), []string{"a=1", "b=1"})
			c.drop(Clusters, "*")
			c.ask(Clusters, "c")
			c.takeIn(Clusters, one("-c"), one("a=1")) // the server has heard it
			b.offer(Clusters, "a=1", "b=2")
			c.conn.Quiet()
			b.offer(Clusters, "a=2", "b=2")
			c.take(Clusters, "a=2")
			c.ask(Clusters, "*")
			c.take(Clusters, "a=2", "b=2")
		}},
		{name: "a name given up under a wildcard is told anew", only: delta, check: func(b *bench) {
			b.offer(Clusters, "a=1")
			c := b.connect(Clusters)
			c.ask(Clusters, "*", "a", "x")
			c.take(Clusters, "a=1", "-x")
			c.drop(Clusters, "a", "x")
			c.take(Clusters, "a=1", "-x")
			c.conn.Quiet()
		}},
	}
}

// answering returns the rules of responses, ACKs and NACKs.
func answering(delta, world *protocol.Variant) []rule {
	return []rule{
		{name: "what is removed is told", check: func(b *bench) {
			for _, typeURL := range b.served() {
				b.offer(typeURL, "a=1", "b=1")
				c := b.connect(typeURL)
				c.ask(typeURL, "a", "b")
				c.take(typeURL, "a=1", "b=1")
				b.offer(typeURL, "b=1")
				switch typeURL {
				case Endpoints:
					c.take(typeURL, "a=")
				case Clusters:
					c.takeIn(typeURL, one("-a"), one("b=1"))
				default:
					c.takeIn(typeURL, one("-a"), nil)
				}
				c.conn.Quiet()
				b.offer(typeURL, "a=2", "b=1")
				if typeURL == Clusters {
					c.takeIn(typeURL, one("a=2"), []string{"a=2", "b=1"})
				} else {
					c.take(typeURL, "a=2")
				}
				c.conn.Close()
			}
		}},
		{name: "what is unchanged is not sent", check: func(b *bench) {
			b.offer(Clusters, "a=1", "b=1")
			c := b.connect(Clusters)
			c.ask(Clusters)
			c.take(Clusters, "a=1", "b=1")
			b.offer(Clusters, "a=1", "b=1")
			b.offer(Secrets, "a=1")
			c.conn.Quiet()
		}},
		{name: "one response of a type is under way, and the next has the newest", check: func(b *bench) {
			b.offer(Endpoints, "a=1", "b=1")
			c := b.connect(Endpoints)
			c.ask(Endpoints, "a", "b")
			r := c.expect(Endpoints, "a=1", "b=1")
			b.offer(Endpoints, "a=2", "b=1")
			c.conn.Quiet()
			c.ack(r)
			c.take(Endpoints, "a=2")
			c.conn.Quiet()
		}},
		{name: "types are answered apart", several: true, check: func(b *bench) {
			b.offer(Clusters, "a=1")
			b.offer(Secrets, "a=1")
			c := b.connect("")
			c.ask(Secrets, "a")
			r := c.expect(Secrets, "a=1")
			c.ask(Clusters)
			c.take(Clusters, "a=1")
			c.ack(r)
			c.conn.Quiet()
		}},
		{name: "what is refused is not sent again, and what is not goes on", check: func(b *bench) {
			b.offer(Clusters, "a=1", "b=1")
			c := b.connect(Clusters)
			c.ask(Clusters)
			c.take(Clusters, "a=1", "b=1")
			b.offer(Clusters, "a=bad", "b=1")
			if c.delta() {
				c.nack(c.expect(Clusters, "a=bad"))
			} else {
				c.nack(c.expect(Clusters, "a=bad", "b=1"))
			}
			c.conn.Quiet()
			b.offer(Clusters, "a=bad", "b=2")
			c.takeIn(Clusters, one("b=2"), []string{"a=1", "b=2"}) // the last good form
			c.conn.Quiet()
			b.offer(Clusters, "a=good", "b=2")
			c.takeIn(Clusters, one("a=good"), []string{"a=good", "b=2"})
			c.conn.Quiet()
		}},
		{name: "what was refused with others is found, and these are taken", check: func(b *bench) {
			b.offer(Endpoints, "a=bad", "b=1")
			c := b.connect(Endpoints)
			c.ask(Endpoints, "a", "b")
			c.nack(c.expect(Endpoints, "a=bad", "b=1"))
			c.nack(c.expect(Endpoints, "a=bad"))
			c.take(Endpoints, "b=1")
			c.conn.Quiet()
			b.offer(Endpoints, "a=good", "b=1")
			c.take(Endpoints, "a=good")
			c.conn.Quiet()
		}},
		{name: "what was refused and is removed leaves nothing to mend", check: func(b *bench) {
			b.offer(Clusters, "a=bad", "b=1")
			c := b.connect(Clusters)
			c.ask(Clusters)
			c.nack(c.expect(Clusters, "a=bad", "b=1"))
			c.nack(c.expect(Clusters, "a=bad"))
			c.take(Clusters, "b=1")
			b.offer(Clusters, "b=1")
			c.takeIn(Clusters, one("-a"), one("b=1")) // it may have been taken
			c.conn.Quiet()
		}},
		{name: "a stale nonce acknowledges nothing", check: func(b *bench) {
			b.offer(Endpoints, "a=1")
			c := b.connect(Endpoints)
			c.ask(Endpoints, "a")
			first := c.expect(Endpoints, "a=1")
			c.ack(first)
			b.offer(Endpoints, "a=2")
			second := c.expect(Endpoints, "a=2")
			b.offer(Endpoints, "a=3")
			c.answer(Endpoints, first.Nonce)
			c.conn.Quiet()
			c.ack(second)
			c.take(Endpoints, "a=3")
		}},
		{name: "names said with a stale nonce are said again", only: world, check: func(b *bench) {
			b.offer(Endpoints, "a=1", "b=1")
			c := b.connect(Endpoints)
			c.ask(Endpoints, "a")
			first := c.expect(Endpoints, "a=1")
			c.ack(first)
			b.offer(Endpoints, "a=2", "b=1")
			second := c.expect(Endpoints, "a=2")
			c.say(Endpoints, protocol.Request{Names: NameSet("a", "b"), Nonce: first.Nonce})
			c.conn.Quiet()
			c.typ(Endpoints).names["b"] = true
			c.ack(second)
			c.take(Endpoints, "b=1")
		}},
		{name: "names said with a stale nonce count", only: delta, check: func(b *bench) {
			b.offer(Endpoints, "a=1", "b=1")
			c := b.connect(Endpoints)
			c.ask(Endpoints, "a")
			first := c.expect(Endpoints, "a=1")
			c.ack(first)
			b.offer(Endpoints, "a=2", "b=1")
			second := c.expect(Endpoints, "a=2")
			c.say(Endpoints, protocol.Request{Subscribe: NameSet(one("b")...), Nonce: first.Nonce})
			c.conn.Quiet()
			c.ack(second)
			c.take(Endpoints, "b=1")
		}},
		{name: "a name given up while it is under way is sent no more", check: func(b *bench) {
			b.offer(Secrets, "a=1", "b=1")
			c := b.connect(Secrets)
			c.ask(Secrets, "a", "b")
			r := c.expect(Secrets, "a=1", "b=1")
			if c.delta() {
				c.drop(Secrets, "a")
				c.ack(r)
			} else {
				delete(c.typ(Secrets).names, "a")
				c.ack(r)
			}
			b.offer(Secrets, "a=2", "b=2")
			c.take(Secrets, "b=2")
			c.conn.Quiet()
		}},
		{name: "a type that nobody serves is answered", several: true, check: func(b *bench) {
			c := b.connect("")
			c.ask("type.googleapis.com/of.nobody", "x")
			c.takeIn("type.googleapis.com/of.nobody", one("-x"), nil)
			c.conn.Quiet()
		}},
	}
}

// reconnecting returns the rules of what a client states on a new stream.
func reconnecting(delta *protocol.Variant) []rule {
	return []rule{
		{name: "who has all is sent nothing on another stream", check: func(b *bench) {
			b.offer(Clusters, "a=1", "b=1")
			c := b.connect(Clusters)
			c.ask(Clusters)
			c.take(Clusters, "a=1", "b=1")
			c = c.again(Clusters)
			c.ask(Clusters)
			c.conn.Quiet()
			b.offer(Clusters, "a=1", "b=2")
			c.takeIn(Clusters, one("b=2"), []string{"a=1", "b=2"})
		}},
		{name: "who has some is sent what it lacks on another stream", check: func(b *bench) {
			b.offer(Clusters, "a=1", "b=1", "d=1")
			c := b.connect(Clusters)
			c.ask(Clusters)
			c.take(Clusters, "a=1", "b=1", "d=1")
			c.conn.Close()
			b.offer(Clusters, "a=1", "b=2", "c=1")
			c = c.again(Clusters)
			c.ask(Clusters)
			c.takeIn(Clusters, []string{"b=2", "c=1"}, []string{"a=1", "b=2", "c=1"})
			if c.delta() {
				c.take(Clusters, "-d")
			}
			c.conn.Quiet()
		}},
		{name: "named resources are stated by their versions", only: delta, check: func(b *bench) {
			for _, typeURL := range b.served() {
				b.offer(typeURL, "a=1", "b=1", "c=1")
				c := b.connect(typeURL)
				c.ask(typeURL, "a", "b")
				c.take(typeURL, "a=1", "b=1")
				c.conn.Close()
				b.offer(typeURL, "a=1", "b=2", "c=1")
				c = c.again(typeURL)
				c.ask(typeURL, "a", "b", "c")
				c.take(typeURL, "b=2", "c=1")
				c.conn.Quiet()
				c.conn.Close()
			}
		}},
		{name: "virtual hosts asked for as a whole are stated by their versions", only: delta, check: func(b *bench) {
			b.offer(Hosts, "a=1", "b=1")
			c := b.connect(Hosts)
			c.ask(Hosts)
			c.take(Hosts, "a=1", "b=1")
			c.conn.Close()
			b.offer(Hosts, "a=2")
			c = c.again(Hosts)
			c.ask(Hosts)
			c.take(Hosts, "a=2")
			c.take(Hosts, "-b")
			c.conn.Quiet()
		}},
	}
}

// warming returns the rules of parents and children, such as clusters and endpoints.
func warming(delta *protocol.Variant) []rule {
	return []rule{
		{name: "a parent that is sent again has its children sent again", several: true, check: func(b *bench) {
			b.offer(Clusters, "a=1", "b=1")
			b.offer(Endpoints, "a=1", "b=1")
			c := b.connect("")
			c.ask(Clusters)
			c.take(Clusters, "a=1", "b=1")
			c.ask(Endpoints, "a", "b")
			c.take(Endpoints, "a=1", "b=1")
			b.offer(Clusters, "a=2", "b=1")
			r := c.conn.Receive()
			if r.TypeURL != Clusters {
				c.t.Fatalf("a response of %s before that of the parent", r.TypeURL)
			}
			c.take(Endpoints, "a=1") // a client may wait for these before it acknowledges
			c.ack(r)
			c.conn.Quiet()
		}},
		{name: "a parent that is sent has its children sent whatever the client states", several: true, only: delta, check: func(b *bench) {
			b.offer(Clusters, "a=1", "b=1")
			b.offer(Endpoints, "a=1", "b=1")
			c := b.connect("")
			c.ask(Clusters)
			c.take(Clusters, "a=1", "b=1")
			c.ask(Endpoints, "a", "b")
			c.take(Endpoints, "a=1", "b=1")
			c.conn.Close()
			b.offer(Clusters, "a=2", "b=1")
			c = c.again("")
			c.ask(Clusters)
			c.take(Clusters, "a=2")
			c.ask(Endpoints, "a", "b")
			c.take(Endpoints, "a=1")
			c.conn.Quiet()
		}},
		{name: "children without their parents are sent as they change", check: func(b *bench) {
			b.offer(Clusters, "a=1")
			b.offer(Endpoints, "a=1")
			c := b.connect(Endpoints)
			c.ask(Endpoints, "a")
			c.take(Endpoints, "a=1")
			b.offer(Clusters, "a=2")
			c.conn.Quiet()
			b.offer(Endpoints, "a=2")
			c.take(Endpoints, "a=2")
		}},
	}
}
