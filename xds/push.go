package xds

import (
	"context"
	"time"

	"github.com/portolan-mesh/portolan/xds/order"
	"github.com/portolan-mesh/portolan/xds/stream"
)

// push brings the connection up to date: its world is taken to the newest
// context and offered, and what may be sent now is sent.
func (c *Connection) push(ctx context.Context) error {
	if c.proxy == nil {
		return nil // the first request brings it to the newest
	}
	if err := c.advance(ctx); err != nil {
		return err
	}
	return c.flush()
}

// advance brings the world to the newest context and offers it, when it is the
// connection's turn. Only the building is rationed: a client that is slow to
// receive must not hold back the others.
func (c *Connection) advance(ctx context.Context) error {
	if err := c.server.queue.enter(ctx, c.at); err != nil {
		return err
	}
	defer c.server.queue.leave()
	began := time.Now()
	c.at = c.server.rounds.number.Load()
	c.world.advance(c.server.context.Load)
	c.class.Store(c.world.world)
	revision := c.world.context().Revision()
	c.flow.Offer(c.world.resources, revision)
	c.server.metrics.built(time.Since(began))
	return nil
}

// flush sends what may be sent now; package order says what that is.
func (c *Connection) flush() error {
	if c.flow == nil {
		return nil
	}
	if c.flow.Opening() {
		_, took := c.moved()
		c.flow.Took(took)
	}
	for typeURL, response := range c.flow.Responses(time.Now()) {
		if err := c.send(typeURL, response); err != nil {
			return err
		}
	}
	c.late(c.flow.Late())
	return nil
}

// moved is when the client was last heard and has last taken something, zero where
// that is not known.
func (c *Connection) moved() (said, took time.Time) {
	if c.server.options.Moved == nil || c.remote == nil {
		return time.Time{}, time.Time{}
	}
	return c.server.options.Moved(c.remote)
}

// late tells what was sent too early, of each type the first.
func (c *Connection) late(all []order.Late) {
	told := map[string]bool{}
	for _, late := range all {
		t := c.timing(late.TypeURL)
		t.late++
		c.server.metrics.late(t.name)
		if told[late.TypeURL] {
			continue
		}
		told[late.TypeURL] = true
		c.logger.Warn("sent without the clusters that they lead to, which were awaited for too long: see why the proxy has not taken them",
			"proxy", c.name(), "type", late.TypeURL, "resources", count(all, late.TypeURL), "first", late.Name, "missing", late.Missing, "waited", c.server.options.ReadyLimit)
	}
}

func count(all []order.Late, typeURL string) int {
	n := 0
	for _, late := range all {
		if late.TypeURL == typeURL {
			n++
		}
	}
	return n
}

// send writes a response to the wire. A client that takes nothing has its stream
// closed, which ends the blocked write.
func (c *Connection) send(typeURL string, r *stream.Response) error {
	t := c.timing(typeURL)
	t.sent = time.Now()
	c.away.Store(true)
	defer c.away.Store(false)
	resources := len(r.Resources)
	message := c.wire.encode(typeURL, r) // what blocks holds shared bytes, and no list of resources
	c.sending.begin(t.sent)
	defer c.sending.end()
	if err := c.wire.send(message); err != nil {
		return err
	}
	t.counts.sent(resources)
	return nil
}
