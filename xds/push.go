package xds

import (
	"context"
	"time"

	"github.com/portolan-mesh/portolan/xds/delivery"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/encode"
)

// push advances the client's desired resources to the newest context, and sends what may be
// sent now.
func (c *Connection) push(ctx context.Context) error {
	if c.proxy == nil {
		return nil // the first request advances it
	}
	if c.member == nil { // a control plane, whose right may have ended
		if err := c.admitted.MayExport(ctx); err != nil {
			c.server.logger.Info("closing the stream of a control plane that may not read the objects of the mesh any more", "proxy", c.note.Node(), "reason", err)
			return err
		}
	}
	if err := c.advance(ctx); err != nil {
		return err
	}
	return c.flush()
}

// advance brings the client's desired resources to the newest context, and hands them to
// the Sequencer. The queue limits only the building: a client that is slow to receive must
// not hold back others.
func (c *Connection) advance(ctx context.Context) error {
	if err := c.server.queue.enter(ctx, c.generation); err != nil {
		return err
	}
	defer c.server.queue.leave()
	began := time.Now()
	c.generation = c.server.generations.number.Load()
	c.desired.Advance(c.server.context.Load)
	if c.member != nil {
		c.reads.Store(c.member.Reads())
	}
	revision := c.desired.Context().Revision()
	c.sequencer.SetDesired(c.desired.Resources, revision)
	c.server.metrics.buildTime.Observe(time.Since(began).Seconds())
	return nil
}

// flush sends the responses that the Sequencer returns.
func (c *Connection) flush() error {
	if c.sequencer == nil {
		return nil
	}
	for typeURL, response := range c.sequencer.Responses(time.Now()) {
		if err := c.send(typeURL, response); err != nil {
			return err
		}
	}
	c.reportLate(c.sequencer.Late())
	return nil
}

// reportLate reports resources that were sent before their clusters. It logs the first of
// each type.
func (c *Connection) reportLate(all []delivery.Late) {
	for len(all) > 0 {
		first, n := all[0], 1
		for n < len(all) && all[n].TypeURL == first.TypeURL {
			n++
		}
		all = all[n:]
		t := c.typeState(first.TypeURL)
		t.Late += n
		t.counts.lates.Add(float64(n))
		c.server.logger.Warn("sent without the clusters that they lead to, which were awaited for too long: see why the proxy has not taken them",
			"proxy", c.note.Node(), "type", t.url, "resources", n, "first", first.Name, "missing", first.Missing, "waited", c.server.options.ReadyLimit)
	}
}

func (c *Connection) send(typeURL string, r *protocol.Response) error {
	t := c.typeState(typeURL)
	t.SentAt = time.Now()
	nonce, version, resources, removed := r.Nonce, r.Version, len(r.Resources), len(r.Removed)
	m := c.wire.encode(typeURL, r) // a blocked write holds shared bytes, and no list of resources
	size := m.Size()
	if err := c.write(m); err != nil {
		return err
	}
	c.transcript.Load().Sent(t.Name, nonce, version, resources, removed, size)
	t.counts.responses.Inc()
	t.counts.resources.Add(float64(resources))
	return nil
}

// write blocks until the transport takes the message. If the client does not take it in time, the
// timer ends the stream, and the write with it.
func (c *Connection) write(m *encode.Message) error {
	c.waitsForClient.Store(true)
	defer c.waitsForClient.Store(false)
	c.sending.Reset(c.server.options.StallTimeout)
	defer c.sending.Stop()
	c.admitted.StartClocks(true)
	defer c.admitted.StopClocks()
	return c.wire.send(m)
}
