package identity

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/time/rate"
)

const (
	// Each source has failureBurst refusals free, and one more each failureInterval. As many
	// again count if they were under way at the same time; the source then waits a minute.
	failureBurst    = 20
	failureInterval = 3 * time.Second
	// maxSources bounds the remembered sources.
	maxSources = 10_000
	// sourceBits is how many bits of an IPv6 address identify a source: its holder chooses the
	// rest.
	sourceBits = 64
)

// Limited is a Proof that limits how often the credentials of a source may prove nothing. A
// source is an address, or the network of an IPv6 address. Even a limited source gets in with
// a credential that is known to be good from memory, since its holder has not guessed it.
// Limited remembers a bounded number of sources, and forgets the least recently used one
// first.
type Limited struct {
	proof Proof
	now   func() time.Time

	mu      sync.Mutex // guards what follows
	sources *lru.Cache[netip.Addr, *rate.Limiter]
}

// NewLimited returns a Proof that limits the failures of another. now is the clock; nil
// stands for time.Now.
func NewLimited(proof Proof, now func() time.Time) *Limited {
	if now == nil {
		now = time.Now
	}
	sources, err := lru.New[netip.Addr, *rate.Limiter](maxSources)
	if err != nil {
		panic(err) // only for an invalid size
	}
	return &Limited{proof: proof, now: now, sources: sources}
}

// Prove implements Proof.
func (l *Limited) Prove(ctx context.Context, credential string, from netip.Addr) (who Identity, err error) {
	err = l.Try(from, func() bool { return knows(l.proof, credential, from) }, func() error {
		who, err = l.proof.Prove(ctx, credential, from)
		return err
	})
	return who, err
}

// Try calls prove for a credential from an address and returns its error; errors that are
// refusals count. If the source is over the limit, Try calls prove only if known returns true.
// known is like Knower.Knows.
func (l *Limited) Try(from netip.Addr, known func() bool, prove func() error) error {
	left := l.limiter(from)
	if tokens := left.TokensAt(l.now()); tokens < 1 && !known() {
		return &ThrottledError{After: time.Duration((1 - tokens) * float64(failureInterval))}
	}
	err := prove()
	if now := l.now(); (errors.Is(err, ErrUnproven) || errors.Is(err, ErrForeign)) && left.TokensAt(now) > -failureBurst {
		left.ReserveN(now, 1) // also into debt
	}
	return err
}

// limiter returns the limiter of an address's source.
func (l *Limited) limiter(from netip.Addr) *rate.Limiter {
	source := from.Unmap().WithZone("")
	if source.Is6() {
		prefix, _ := source.Prefix(sourceBits)
		source = prefix.Addr()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	limiter, ok := l.sources.Get(source)
	if !ok {
		limiter = rate.NewLimiter(rate.Every(failureInterval), failureBurst)
		l.sources.Add(source, limiter)
	}
	return limiter
}
