package fleet

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
)

// Options say who is simulated.
type Options struct {
	// Address is where the server listens, host:port, until the fleet is moved.
	Address string
	// TLS is how each proxy connects, with the certificate that it shows; nil is
	// plaintext.
	TLS     func(proxy int) *tls.Config
	Proxies int
	Variant protocol.Variant
	// Node is what each proxy says of itself.
	Node func(proxy int) *corev3.Node
	// States has proxies state what they have when they open a stream again, as
	// Envoy does. Without it they ask for everything as at first.
	States bool
	// Record is given each response that the first proxy receives. It must not
	// keep the bytes.
	Record func(typeURL string, response []byte)
}

// Fleet is a number of proxies. Its methods may be called by several goroutines
// while it runs.
type Fleet struct {
	o       Options
	at      fields
	digests *digests
	steps   *steps
	proxies []*proxy
	address atomic.Pointer[string]
	receipt atomic.Pointer[Receipt]
	last    atomic.Int64 // when a response was received, in Unix nanoseconds
	heard   atomic.Int64 // when a part of one was, likewise
	stated  atomic.Int64 // see Stated
	rising  rising

	mu  sync.Mutex // guards err
	err error      // why a stream ended last
}

// New makes a fleet, which does nothing before it runs.
func New(o Options) *Fleet {
	f := &Fleet{
		o: o, at: fieldsOf[o.Variant], digests: newDigests(fieldsOf[o.Variant]), steps: newSteps(o.statesVersions()),
	}
	f.Move(o.Address)
	for i := range o.Proxies {
		f.proxies = append(f.proxies, newProxy(f, i))
	}
	return f
}

// statesVersions says whether proxies keep the versions of what they have.
func (o Options) statesVersions() bool { return o.States && o.Variant == protocol.Delta }

// Move has the proxies open the next streams to another server.
func (f *Fleet) Move(address string) { f.address.Store(&address) }

// Run connects all proxies at once and has them follow until ctx ends. A stream
// that ends before is opened again after a while, as Envoy does. It may be called
// again when it has returned: the proxies are those which they were.
func (f *Fleet) Run(ctx context.Context) error {
	var running sync.WaitGroup
	for _, p := range f.proxies {
		running.Go(func() { p.run(ctx) })
	}
	running.Wait()
	return nil
}

// Sync is how the proxies came to have everything.
type Sync struct {
	// At is when the last of it was received.
	At time.Time
	// Counts is what they were sent.
	Counts Counts
	// Reconnects is how often a stream had to be opened again.
	Reconnects int
	// Reason is why the last of them ended before.
	Reason error
}

// AwaitSync waits until every proxy has an answer to all that it asked for, and
// nothing was received for the time of silence, not even a part of a response.
func (f *Fleet) AwaitSync(ctx context.Context, silence time.Duration) (Sync, error) {
	if err := f.await(ctx, silence, f.synced); err != nil {
		return Sync{}, fmt.Errorf("%d of %d proxies are not in sync: %w", f.o.Proxies-f.count(), f.o.Proxies, errors.Join(err, f.failure()))
	}
	out := Sync{At: time.Unix(0, f.last.Load()), Counts: f.Counts(), Reason: f.failure()}
	out.Reconnects = f.Reconnects()
	return out, nil
}

// AwaitSilence waits until nothing was received for so long.
func (f *Fleet) AwaitSilence(ctx context.Context, silence time.Duration) error {
	return f.await(ctx, silence, func() bool { return true })
}

func (f *Fleet) await(ctx context.Context, silence time.Duration, condition func() bool) error {
	began := time.Now()
	wait := silence
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(max(wait, silence/20)):
		}
		last := time.Unix(0, f.heard.Load())
		if last.Before(began) {
			last = began
		}
		if wait = silence - time.Since(last); wait <= 0 && condition() {
			return nil
		}
	}
}

func (f *Fleet) synced() bool { return f.count() == f.o.Proxies }

// count is how many proxies lack nothing.
func (f *Fleet) count() int {
	n := 0
	for _, p := range f.proxies {
		if p.synced() {
			n++
		}
	}
	return n
}

// Counts is what was received so far.
func (f *Fleet) Counts() Counts {
	out := Counts{}
	for _, p := range f.proxies {
		p.addTo(out)
	}
	return out
}

// Reconnects is how often a stream was opened but for the first of each proxy.
func (f *Fleet) Reconnects() int {
	n := 0
	for _, p := range f.proxies {
		n += p.reconnects()
	}
	return n
}

// Rising is how many proxies at most were being brought up at one time: had been
// sent something on a stream, and no listeners.
func (f *Fleet) Rising() int { return f.rising.most() }

// rising counts proxies that are being brought up.
type rising struct {
	mu        sync.Mutex // guards what follows
	now, peak int
}

func (r *rising) add(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.now += n
	r.peak = max(r.peak, r.now)
}

func (r *rising) most() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.peak
}

// Stated is how many bytes of requests said so far what proxies have.
func (f *Fleet) Stated() int64 { return f.stated.Load() }

func (f *Fleet) failed(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
}

func (f *Fleet) failure() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err == nil {
		return nil
	}
	return fmt.Errorf("a stream ended: %w", f.err)
}
