package xds

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// admission bounds how many proxies are brought up from nothing at one time:
// what a fleet asks for that comes back all at once must not take the memory and
// the time that those need who are there already.
type admission struct {
	slots chan struct{} // holds a token for each first sync
	// patience is how long a stream waits for its turn, half of it again at
	// random, so that those which are refused do not come back all at once.
	patience time.Duration
	// limit is how long a turn lasts at most: a client may never ask for all.
	limit time.Duration
}

func newAdmission(size int, patience, limit time.Duration) *admission {
	return &admission{slots: make(chan struct{}, size), patience: patience, limit: limit}
}

// firstSyncLimit is how long a first sync counts as one. An Envoy takes less.
const firstSyncLimit = 10 * time.Second

// errCrowded is what a stream is told that waited in vain. Clients try again,
// here or at another server.
var errCrowded = status.Error(codes.Unavailable, "too many proxies are being brought up at this time: try again")

// enter waits for a turn. It ends when leave is called, which may be more than
// once, or at its limit.
func (a *admission) enter(ctx context.Context) (leave func(), err error) {
	patience := time.NewTimer(a.patience + rand.N(a.patience/2+1))
	defer patience.Stop()
	select {
	case a.slots <- struct{}{}:
	default:
		select {
		case a.slots <- struct{}{}:
		case <-patience.C:
			return nil, errCrowded
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	free := sync.OnceFunc(func() { <-a.slots })
	over := time.AfterFunc(a.limit, free)
	return func() { over.Stop(); free() }, nil
}

// inside is how many first syncs there are.
func (a *admission) inside() int { return len(a.slots) }

// admitted ends the connection's turn of the first sync once its client has
// taken listeners, which an Envoy asks for when it has clusters and endpoints;
// on a stream of one type, once it has taken that.
func (c *Connection) admitted() {
	if c.leave == nil || c.flow == nil {
		return
	}
	for typeURL, session := range c.flow.Sessions() {
		t, served := c.server.typ(typeURL)
		last := typeURL == c.wire.one() || served && t.Name == "LDS"
		if last && session.Started() && !session.InFlight() {
			c.leave()
			c.leave = nil
			return
		}
	}
}
