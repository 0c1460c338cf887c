package xds

import (
	"context"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/portolan-mesh/portolan/xds/resource"
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
	c.world.advance(c.server.context.Load)
	revision := c.world.context().Revision()
	for _, typeURL := range c.order {
		c.sessions[typeURL].Offer(c.world.resources(typeURL), revision)
	}
	c.server.metrics.built(time.Since(began))
	return nil
}

// flush sends what may be sent now, type by type in order: what a client lacks
// of one type goes out before what may refer to it. Removals wait until nothing
// is lacking and nothing is under way.
func (c *Connection) flush() error {
	var lacking []string // types of which the client has to take more first
	for _, typeURL := range c.order {
		if !c.waits(typeURL, lacking) {
			if err := c.sendNext(typeURL, stream.Additions()); err != nil {
				return err
			}
		}
		if c.sessions[typeURL].Lacks() {
			lacking = append(lacking, typeURL)
		}
	}
	if len(lacking) > 0 {
		return nil // until the client has answered
	}
	for _, session := range c.sessions {
		if session.InFlight() {
			return nil
		}
	}
	return c.remove()
}

// waits says whether a type may refer to what the client lacks. Children are no
// such type, though they come after their parent: a client may take its time to
// acknowledge clusters, or listeners, until it has what these wait for.
func (c *Connection) waits(typeURL string, lacking []string) bool {
	t, served := c.server.typ(typeURL)
	return served && slices.ContainsFunc(lacking, func(l string) bool { return l != t.Parent })
}

// remove sends removals in the opposite order: what refers goes before what it
// refers to, parents before their children.
func (c *Connection) remove() error {
	for i := range slices.Backward(c.order) {
		if err := c.removeAfterParents(i); err != nil {
			return err
		}
	}
	return nil
}

func (c *Connection) removeAfterParents(i int) error {
	if t, _ := c.server.typ(c.order[i]); t.Parent != "" {
		if err := c.removeAfterParents(slices.Index(c.order, t.Parent)); err != nil {
			return err
		}
	}
	return c.removeType(i)
}

// removeType sends the removals of one type, unless the client has refused what
// came later: it goes on with the older that may refer to them.
func (c *Connection) removeType(i int) error {
	for _, later := range c.order[i+1:] {
		t, _ := c.server.typ(later)
		if t.Parent != c.order[i] && c.sessions[later].Status().State == stream.Rejected {
			return nil
		}
	}
	return c.sendNext(c.order[i], stream.All())
}

// sendNext sends the next response of a type, if there is one. The children of
// what it carries become due again; those of what it takes away the client gives
// up by itself.
func (c *Connection) sendNext(typeURL string, allow stream.Allow) error {
	response, ok := c.sessions[typeURL].Next(allow)
	if !ok {
		return nil
	}
	for _, t := range c.server.options.Types {
		if t.Parent == typeURL {
			session := c.sessions[t.Generator.TypeURL()]
			session.Resend(children(slices.Values(response.Changed)))
			session.Forget(children(maps.Values(response.Withdrawn)))
			if t.CoverParent { // of the same name, and no child of what it is now
				session.Forget(slices.Collect(maps.Keys(response.Withdrawn)))
				session.Forget(namesOf(response.Changed))
			}
		}
	}
	return c.send(typeURL, response)
}

// children are the resources that a client waits for when it has taken others.
func children(parents iter.Seq[*resource.Resource]) []string {
	var out []string
	for parent := range parents {
		if parent != nil {
			out = append(out, parent.Children...)
		}
	}
	return out
}

func namesOf(resources []*resource.Resource) []string {
	out := make([]string, len(resources))
	for i, r := range resources {
		out[i] = r.Name
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
