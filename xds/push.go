package xds

import (
	"context"
	"time"

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
	if err := c.server.queue.enter(ctx); err != nil {
		return err
	}
	defer c.server.queue.leave()
	began := time.Now()
	to := c.server.context.Load()
	c.world.advance(to)
	for _, typeURL := range c.order {
		c.sessions[typeURL].Offer(c.world.resources(typeURL), to.Revision())
	}
	c.server.metrics.built(time.Since(began))
	return nil
}

// flush sends what may be sent now, type by type in order: what a client lacks
// of one type goes out before what may refer to it. Removals wait until nothing
// is lacking and nothing is under way, and go in the opposite order.
func (c *Connection) flush() error {
	for _, typeURL := range c.order {
		if err := c.sendNext(typeURL, false); err != nil {
			return err
		}
		if c.sessions[typeURL].Lacks() {
			return nil // until the client has answered
		}
	}
	for _, session := range c.sessions {
		if session.InFlight() {
			return nil
		}
	}
	for i := len(c.order) - 1; i >= 0; i-- {
		if err := c.sendNext(c.order[i], true); err != nil {
			return err
		}
	}
	return nil
}

// sendNext sends the next response of a type, if there is one, and makes the
// children of what it carries due again.
func (c *Connection) sendNext(typeURL string, removals bool) error {
	response, ok := c.sessions[typeURL].Next(removals)
	if !ok {
		return nil
	}
	for _, t := range c.server.options.Types {
		if t.Parent == typeURL {
			c.sessions[t.Generator.TypeURL()].Resend(children(response))
		}
	}
	return c.send(typeURL, response)
}

// children are the resources that a client will wait for when it has taken a
// response.
func children(r *stream.Response) []string {
	var out []string
	for _, parent := range r.Changed {
		out = append(out, parent.Children...)
	}
	return out
}

// send writes a response to the wire. A client that takes nothing has its stream
// closed, which ends the blocked write.
func (c *Connection) send(typeURL string, r *stream.Response) error {
	c.last[typeURL].sent = time.Now()
	name := c.name()
	watchdog := time.AfterFunc(c.server.options.StallTimeout, func() {
		c.logger.Warn("closing a stream whose client takes nothing", "proxy", name)
		c.cancel(errStalled)
	})
	defer watchdog.Stop()
	if err := c.wire.send(typeURL, r); err != nil {
		return err
	}
	c.server.metrics.sent(c.server.typeName(typeURL), r)
	return nil
}
