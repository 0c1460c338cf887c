package admission

import (
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/portolan-mesh/portolan/discovery/identity"
)

// budget bounds what clients cost: the memory for the subscriptions of one stream, of one
// identity, and of all streams; and the number of streams of one identity. One machine that
// runs wild, or that an attacker took over, must not take the server from all others.
// Memory that several streams share counts once. If all streams together hold too much,
// budget ends the streams with the largest share.
type budget struct {
	each, all, perIdentity int64
	streams                int          // how many streams an identity may have
	ended                  atomic.Int64 // counts the streams that were ended

	mu       sync.Mutex // guards the fields below
	total    int64
	held     map[any]*item
	accounts map[identity.Identity]*account // never removed: the mesh has only so many identities
}

// account counts the open streams of one identity, and the memory that they keep.
type account struct {
	who     identity.Identity
	streams int
	opened  *rate.Limiter
	bytes   int64 // what its streams keep
}

// reopen is the time in which an identity may open as many streams as it may have.
const reopen = time.Minute

// item is memory that one or more streams hold under one key.
type item struct {
	bytes   int64
	streams map[*Stream]struct{}
	kept    map[*account]int // how many streams of each account keep it
	ended   bool             // its streams were ended: it is not counted any more
}

// share returns how many bytes each of the streams accounts for.
func (i *item) share() int64 { return i.bytes / int64(len(i.streams)) }

func newBudget(o Options) *budget {
	return &budget{
		each: o.StreamMemory, all: o.StreamsMemory, perIdentity: o.StreamsMemory / 4, streams: o.MaxIdentityStreams,
		held: map[any]*item{}, accounts: map[identity.Identity]*account{},
	}
}

// enter fails if the identity has too many streams, or opens them too fast.
func (b *budget) enter(who identity.Identity) (*account, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	a := b.accounts[who]
	if a == nil {
		a = &account{who: who, opened: rate.NewLimiter(rate.Limit(float64(b.streams)/reopen.Seconds()), 2*b.streams)}
		b.accounts[who] = a
	}
	switch {
	case a.streams >= b.streams:
		return nil, status.Errorf(codes.ResourceExhausted, "%s has %d streams, and may have %d: give other workloads accounts of their own, or raise --max-streams-per-identity", who, a.streams, b.streams)
	case !a.opened.Allow():
		return nil, status.Errorf(codes.ResourceExhausted, "%s opens streams too fast: it may open %d in %s; try again", who, b.streams, reopen)
	}
	a.streams++
	return a, nil
}

// TooMuch counts a stream that subscribes to too much, and returns the error that is to end
// it.
func (s *Stream) TooMuch(what string) error {
	b := s.gate.budget
	b.ended.Add(1)
	return status.Errorf(codes.ResourceExhausted,
		"%s: the subscriptions of a stream may take %d bytes of memory: have the proxy subscribe to less, or raise --stream-memory", what, b.each)
}

// Hold charges the stream for an item that it holds for a moment. Another call with the
// same key changes the size of the item. Streams that share an item use the same key. The
// caller must Drop it.
func (s *Stream) Hold(what any, bytes int64) {
	b := s.gate.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	b.add(s, what, bytes)
}

// Keep is like Hold for an item that stays: Release drops it. Keep fails if the streams of
// the identity keep too much.
func (s *Stream) Keep(what any, bytes int64) error {
	b := s.gate.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	if s.kept == nil {
		return nil // it is released
	}
	i := b.add(s, what, bytes)
	a := s.account
	if _, had := s.kept[what]; a != nil && !had {
		if i.kept == nil {
			i.kept = map[*account]int{}
		}
		if i.kept[a]++; i.kept[a] == 1 {
			a.bytes += bytes
		}
	}
	s.kept[what] = struct{}{}
	if a != nil && a.bytes > b.perIdentity {
		b.ended.Add(1)
		return status.Errorf(codes.ResourceExhausted,
			"the subscriptions of all streams of %s may take %d bytes of memory, a quarter of --streams-memory: have its proxies subscribe to less, or raise that", a.who, b.perIdentity)
	}
	return nil
}

// add notes that a stream holds an item, and ends streams if all of them hold too much.
func (b *budget) add(s *Stream, what any, bytes int64) *item {
	i := b.held[what]
	if i == nil {
		i = &item{streams: map[*Stream]struct{}{}}
		b.held[what] = i
	}
	i.streams[s] = struct{}{}
	if !i.ended {
		b.total += bytes - i.bytes
	}
	for a := range i.kept {
		a.bytes += bytes - i.bytes
	}
	i.bytes = bytes
	for b.total > b.all && b.endLargest() {
	}
	return i
}

// endLargest ends the streams of the item with the largest share; false if none is left.
func (b *budget) endLargest() bool {
	var largest *item
	for _, i := range b.held {
		if !i.ended && (largest == nil || i.share() > largest.share()) {
			largest = i
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
	b.drop(s, what)
}

func (b *budget) drop(s *Stream, what any) {
	i := b.held[what]
	if i == nil {
		return
	}
	delete(i.streams, s)
	if _, kept := s.kept[what]; kept {
		delete(s.kept, what)
		if a := s.account; a != nil {
			if i.kept[a]--; i.kept[a] == 0 {
				delete(i.kept, a)
				a.bytes -= i.bytes
			}
		}
	}
	if len(i.streams) > 0 {
		return
	}
	delete(b.held, what)
	if !i.ended {
		b.total -= i.bytes
	}
}

// leave takes a stream out of the counts, with all that it keeps.
func (b *budget) leave(s *Stream) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for what := range s.kept {
		b.drop(s, what)
	}
	s.kept = nil
	if s.account != nil {
		s.account.streams--
	}
}

// inUse returns the bytes that are held.
func (b *budget) inUse() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.total
}
