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
	// Of each source, failureBurst refusals are free, and one more each failureInterval. So
	// many more that were under way at the same time count, too: a source waits a minute then.
	failureBurst    = 20
	failureInterval = 3 * time.Second
	// maxSources bounds the sources that are remembered.
	maxSources = 10_000
	// sourceBits are how many bits of an IPv6 address make a source: the rest is its holder's
	// to choose.
	sourceBits = 64
)

// Limited is a Proof that refuses sources whose credentials proved nothing too often: an
// address, or the network of an IPv6 address. Credentials that memory alone knows to be good
// are let in from there, too: who has one has not guessed it. It remembers a bounded number of
// sources, and forgets first who has not come for longest.
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
		panic(err) // of a size that is none
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

// Try runs a proof by another method than Prove, for a credential from an address, and
// returns its error. One that is a refusal counts. known is asked where the source is refused,
// as Knower.Knows.
func (l *Limited) Try(from netip.Addr, known func() bool, prove func() error) error {
	left := l.of(from)
	if tokens := left.TokensAt(l.now()); tokens < 1 && !known() {
		return &ThrottledError{After: time.Duration((1 - tokens) * float64(failureInterval))}
	}
	err := prove()
	if now := l.now(); (errors.Is(err, ErrUnproven) || errors.Is(err, ErrForeign)) && left.TokensAt(now) > -failureBurst {
		left.ReserveN(now, 1) // also below none
	}
	return err
}

// of is the limiter of the source that an address belongs to.
func (l *Limited) of(from netip.Addr) *rate.Limiter {
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

// Sources is how many sources are remembered.
func (l *Limited) Sources() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sources.Len()
}
