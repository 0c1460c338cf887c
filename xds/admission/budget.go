package admission

import (
	"sync"
	"sync/atomic"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/portolan-mesh/portolan/discovery/identity"
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
	streams map[*Stream]struct{}
	by      map[identity.Identity]map[*Stream]struct{} // the streams of an identity that keep it
	ended   bool                                       // its streams were ended: it is not counted any more
}

// share returns how many bytes each of the streams accounts for.
func (h *holding) share() int64 { return h.bytes / int64(len(h.streams)) }

func newBudget(each, all int64) *budget {
	return &budget{each: each, all: all, perIdentity: all / 4, held: map[any]*holding{}, by: map[identity.Identity]int64{}}
}

// TooMuch returns the error for a stream that subscribes to too much.
func (s *Stream) TooMuch(what string) error {
	b := s.gate.budget
	b.ended.Add(1)
	return status.Errorf(codes.ResourceExhausted,
		"%s: the subscriptions of a stream may take %d bytes of memory: have the proxy subscribe to less, or raise --stream-memory", what, b.each)
}

// Hold notes that the stream holds an item for a moment, and the size of the item now. What
// several streams hold is to be charged by one key.
func (s *Stream) Hold(what any, bytes int64) {
	b := s.gate.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	b.add(s, what, bytes)
}

// Keep is Hold for what stays. It fails if the streams of the identity keep too much.
func (s *Stream) Keep(what any, bytes int64) error {
	b := s.gate.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	h := b.add(s, what, bytes)
	who := s.peer.Identity
	if !s.peer.proved() {
		return nil
	}
	if h.by[who] == nil {
		if h.by == nil {
			h.by = map[identity.Identity]map[*Stream]struct{}{}
		}
		h.by[who] = map[*Stream]struct{}{}
		b.by[who] += h.bytes
	}
	h.by[who][s] = struct{}{}
	if b.by[who] > b.perIdentity {
		b.ended.Add(1)
		return status.Errorf(codes.ResourceExhausted,
			"the subscriptions of all streams of %s may take %d bytes of memory, a quarter of --streams-memory: have its proxies subscribe to less, or raise that", who, b.perIdentity)
	}
	return nil
}

// add notes that a stream holds an item, and ends streams if all is too much.
func (b *budget) add(s *Stream, what any, bytes int64) *holding {
	h := b.held[what]
	if h == nil {
		h = &holding{streams: map[*Stream]struct{}{}}
		b.held[what] = h
	}
	h.streams[s] = struct{}{}
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
	for s := range largest.streams {
		b.ended.Add(1)
		s.cancel(status.Errorf(codes.ResourceExhausted,
			"the subscriptions of all streams take more than %d bytes of memory, and this stream has the largest share: have the proxy subscribe to less, or raise --streams-memory", b.all))
	}
	return true
}

// Drop notes that the stream does not hold an item any more.
func (s *Stream) Drop(what any) {
	b := s.gate.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	h := b.held[what]
	if h == nil {
		return
	}
	delete(h.streams, s)
	if who := s.peer.Identity; h.by[who] != nil {
		if delete(h.by[who], s); len(h.by[who]) == 0 {
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
