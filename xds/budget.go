package xds

import (
	"fmt"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/portolan-mesh/portolan/discovery/identity"
	"github.com/portolan-mesh/portolan/xds/delivery/nameset"
	"github.com/portolan-mesh/portolan/xds/encode"
)

// budget bounds the memory for the subscriptions of clients: of one stream, of all streams
// of one identity, and of all. What several streams share counts once. If all streams hold
// too much, budget ends those with the largest share.
type budget struct {
	each, all   int64
	perIdentity int64
	ended       atomic.Int64 // counts the streams that were ended

	mu    sync.Mutex // guards the fields below
	total int64
	held  map[any]*holding
	by    map[identity.Identity]int64 // what the streams of an identity hold
}

// holding is one item of memory.
type holding struct {
	bytes   int64
	streams map[*Connection]struct{}
	by      map[identity.Identity]map[*Connection]struct{} // the streams of an identity that keep it
	ended   bool                                           // its streams were ended: it is not counted any more
}

// share returns how many bytes each of the streams accounts for.
func (h *holding) share() int64 { return h.bytes / int64(len(h.streams)) }

func newBudget(each, all int64) *budget {
	return &budget{each: each, all: all, perIdentity: all / 4, held: map[any]*holding{}, by: map[identity.Identity]int64{}}
}

// refuse returns the error for a stream that subscribes to too much.
func (b *budget) refuse(what string) error {
	b.ended.Add(1)
	return status.Errorf(codes.ResourceExhausted,
		"%s: the subscriptions of a stream may take %d bytes of memory: have the proxy subscribe to less, or raise --stream-memory", what, b.each)
}

// hold notes that a connection holds an item, and the size of the item now.
func (b *budget) hold(c *Connection, what any, bytes int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.add(c, what, bytes)
}

// holdLong is hold for what a connection keeps. It fails if the streams of its identity keep
// too much.
func (b *budget) holdLong(c *Connection, what any, bytes int64) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	h := b.add(c, what, bytes)
	who := c.peer.Identity
	if who == (identity.Identity{}) {
		return nil
	}
	if h.by[who] == nil {
		if h.by == nil {
			h.by = map[identity.Identity]map[*Connection]struct{}{}
		}
		h.by[who] = map[*Connection]struct{}{}
		b.by[who] += h.bytes
	}
	h.by[who][c] = struct{}{}
	if b.by[who] > b.perIdentity {
		b.ended.Add(1)
		return status.Errorf(codes.ResourceExhausted,
			"the subscriptions of all streams of %s may take %d bytes of memory, a quarter of --streams-memory: have its proxies subscribe to less, or raise that", who, b.perIdentity)
	}
	return nil
}

// add notes that a connection holds an item, and ends streams if all is too much.
func (b *budget) add(c *Connection, what any, bytes int64) *holding {
	h := b.held[what]
	if h == nil {
		h = &holding{streams: map[*Connection]struct{}{}}
		b.held[what] = h
	}
	h.streams[c] = struct{}{}
	if !h.ended {
		b.total += bytes - h.bytes
	}
	for who := range h.by {
		b.by[who] += bytes - h.bytes
	}
	h.bytes = bytes
	for b.total > b.all && b.endLargest() {
	}
	return h
}

// endLargest ends the streams of the holding with the largest share; false if none is
// left.
func (b *budget) endLargest() bool {
	var largest *holding
	for _, h := range b.held {
		if !h.ended && (largest == nil || h.share() > largest.share()) {
			largest = h
		}
	}
	if largest == nil {
		return false
	}
	largest.ended = true
	b.total -= largest.bytes
	for c := range largest.streams {
		b.ended.Add(1)
		c.cancel(status.Errorf(codes.ResourceExhausted,
			"the subscriptions of all streams take more than %d bytes of memory, and this stream has the largest share: have the proxy subscribe to less, or raise --streams-memory", b.all))
	}
	return true
}

// drop notes that a connection does not hold an item any more.
func (b *budget) drop(c *Connection, what any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	h := b.held[what]
	if h == nil {
		return
	}
	delete(h.streams, c)
	if who := c.peer.Identity; h.by[who] != nil {
		if delete(h.by[who], c); len(h.by[who]) == 0 {
			delete(h.by, who)
			if b.by[who] -= h.bytes; b.by[who] == 0 {
				delete(b.by, who)
			}
		}
	}
	if len(h.streams) > 0 {
		return
	}
	delete(b.held, what)
	if !h.ended {
		b.total -= h.bytes
	}
}

// inUse returns the bytes that are held.
func (b *budget) inUse() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.total
}

// requestedNames is the key of the requested names of one type. Streams that request the same
// names share them.
type requestedNames struct {
	typeURL string
	names   nameset.Set
}

// chargeNames charges the client's subscription to a type to the budget; it fails if that is
// too much.
func (c *Connection) chargeNames(t *typeState) error {
	b, names := c.server.budget, t.subscription.Names()
	if n := t.subscription.Unanswered(); n != t.unanswered {
		if t.unanswered = n; n > 0 {
			if err := b.holdLong(c, t, encode.PerName*int64(n)); err != nil {
				return err
			}
		} else {
			b.drop(c, t)
		}
	}
	if names == t.names {
		return nil
	}
	had := t.names
	t.names = names
	if c.nameBytes += names.Bytes() - had.Bytes(); c.nameBytes > b.each {
		return b.refuse(fmt.Sprintf("%d names of type %s", names.Len(), t.url))
	}
	var err error
	if names.Len() > 0 {
		err = b.holdLong(c, requestedNames{t.url, names}, names.Bytes())
	}
	if had.Len() > 0 {
		b.drop(c, requestedNames{t.url, had})
	}
	return err
}

// releaseNames releases all subscriptions of the client.
func (c *Connection) releaseNames() {
	for _, t := range c.types {
		c.server.budget.drop(c, t)
		c.server.budget.drop(c, requestedNames{t.url, t.names})
	}
}
