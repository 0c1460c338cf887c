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

// Options describe the simulated proxies.
type Options struct {
	// Address is the server's host:port, until Move.
	Address string
	// TLS returns the TLS settings of each proxy, with its certificate; nil is plaintext.
	TLS     func(proxy int) *tls.Config
	Proxies int
	Variant protocol.Variant
	// Node returns the node of each proxy.
	Node func(proxy int) *corev3.Node
	// States makes proxies state what they have when they reopen a stream, as Envoy does.
	// Otherwise they request everything as at first.
	States bool
	// Record gets each response to the first proxy. It must not keep the bytes.
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
	last    atomic.Int64 // when the last response was received, in Unix nanoseconds
	heard   atomic.Int64 // when the last part of one was, likewise
	stated  atomic.Int64 // see Stated
	rising  rising

	mu  sync.Mutex // guards err
	err error      // why a stream ended last
}

// New makes a fleet. It does nothing before Run.
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

// statesVersions reports whether proxies keep the versions of what they have.
func (o Options) statesVersions() bool { return o.States && o.Variant == protocol.Delta }

// Move makes the proxies open their next streams to another server.
func (f *Fleet) Move(address string) { f.address.Store(&address) }

// Run connects all proxies at once, and follows until ctx ends. It reopens a stream that ends
// earlier after a while, as Envoy does. It may be called again after it has returned: the
// proxies then have what they had.
func (f *Fleet) Run(ctx context.Context) error {
	var running sync.WaitGroup
	for _, p := range f.proxies {
		running.Go(func() { p.run(ctx) })
	}
	running.Wait()
	return nil
}

// Sync describes how the proxies received everything.
type Sync struct {
	// At is when the last response was received.
	At time.Time
	// Counts is what they received.
	Counts Counts
	// Reconnects is how often a stream had to be reopened.
	Reconnects int
	// Reason is why the last such stream ended.
	Reason error
}

// AwaitSync waits until every proxy has an answer to all its requests, and nothing was received
// for the duration of silence, not even a part of a response.
func (f *Fleet) AwaitSync(ctx context.Context, silence time.Duration) (Sync, error) {
	if err := f.await(ctx, silence, f.synced); err != nil {
		return Sync{}, fmt.Errorf("%d of %d proxies are not in sync: %w", f.o.Proxies-f.count(), f.o.Proxies, errors.Join(err, f.failure()))
	}
	out := Sync{At: time.Unix(0, f.last.Load()), Counts: f.Counts(), Reason: f.failure()}
	out.Reconnects = f.Reconnects()
	return out, nil
}

// AwaitSilence waits until nothing was received for the duration of silence.
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

// count returns the number of proxies in sync.
func (f *Fleet) count() int {
	n := 0
	for _, p := range f.proxies {
		if p.synced() {
			n++
		}
	}
	return n
}

// Counts returns what was received so far.
func (f *Fleet) Counts() Counts {
	out := Counts{}
	for _, p := range f.proxies {
		p.addTo(out)
	}
	return out
}

// Reconnects returns how many streams were opened beyond the first of each proxy.
func (f *Fleet) Reconnects() int {
	n := 0
	for _, p := range f.proxies {
		n += p.reconnects()
	}
	return n
}

// Rising returns the peak number of proxies that were being brought up: they had received
// something on a stream, but no listeners.
func (f *Fleet) Rising() int { return f.rising.most() }

// rising counts proxies that are being brought up.
type rising struct {
	mu        sync.Mutex // guards the fields below
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

// Stated returns the number of bytes with which proxies have stated what they have.
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
