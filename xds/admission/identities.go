package admission

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/portolan-mesh/portolan/discovery/identity"
)

// identities bounds what the clients of one identity may have in all: one machine that was
// taken over, or has run wild, must not take the server from all others. Only clients that
// have proved an identity are bounded so.
type identities struct {
	streams int

	mu sync.Mutex // guards of
	of map[identity.Identity]*share
}

// share is what the clients of one identity have.
type share struct {
	streams int
	opened  *rate.Limiter
}

// reopen is the time in which all streams of an identity may be opened anew.
const reopen = time.Minute

func newIdentities(streams int) *identities {
	return &identities{streams: streams, of: map[identity.Identity]*share{}}
}

// enter counts a stream, or returns why it is one too many.
func (i *identities) enter(who identity.Identity) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	s := i.of[who]
	if s == nil {
		i.forget()
		s = &share{opened: rate.NewLimiter(rate.Limit(float64(i.streams)/reopen.Seconds()), 2*i.streams)}
		i.of[who] = s
	}
	switch {
	case s.streams >= i.streams:
		return status.Errorf(codes.ResourceExhausted, "%s has %d streams, and may have %d: give other workloads accounts of their own, or raise --max-streams-per-identity", who, s.streams, i.streams)
	case !s.opened.Allow():
		return status.Errorf(codes.ResourceExhausted, "%s opens streams too fast: it may open %d in %s; try again", who, i.streams, reopen)
	}
	s.streams++
	return nil
}

func (i *identities) leave(who identity.Identity) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.of[who].streams--
}

// keptIdentities is how many identities without a stream are remembered, at least.
const keptIdentities = 1000

// forget drops identities that have no stream and could open as many as one that is new, once
// there are many.
func (i *identities) forget() {
	if len(i.of) < keptIdentities || len(i.of)&(len(i.of)-1) != 0 && len(i.of)%keptIdentities != 0 {
		return
	}
	for who, s := range i.of {
		if s.streams == 0 && s.opened.Tokens() >= float64(2*i.streams) {
			delete(i.of, who)
		}
	}
}
