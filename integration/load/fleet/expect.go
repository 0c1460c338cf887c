package fleet

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Expectation is a response that every proxy should receive: one with a mark, of one of the
// types, or of any type if there are none.
type Expectation struct {
	Types []string
	Mark  []byte
	// Absent expects a response of the types without the mark instead.
	Absent bool
}

func (e Expectation) met(typeURL string, response []byte) bool {
	if len(e.Types) > 0 && !slices.Contains(e.Types, typeURL) {
		return false
	}
	return bytes.Contains(response, e.Mark) != e.Absent
}

// Receipt records when each proxy has received all that was expected.
type Receipt struct {
	expected []Expectation
	complete uint64
	done     chan struct{} // closed when all proxies have received all

	mu    sync.Mutex         // guards what follows
	known map[*digest]uint64 // which expectations a response meets, as bits
	met   []uint64           // by proxy
	times []time.Time        // by proxy
	lack  int
}

// Expect begins to look for what is expected, and drops earlier expectations. There may be at
// most 64.
func (f *Fleet) Expect(expected ...Expectation) *Receipt {
	r := &Receipt{
		expected: expected, complete: 1<<len(expected) - 1, done: make(chan struct{}),
		known: map[*digest]uint64{}, met: make([]uint64, len(f.proxies)), times: make([]time.Time, len(f.proxies)),
		lack: len(f.proxies),
	}
	f.receipt.Store(r)
	return r
}

// received checks a response to a proxy.
func (r *Receipt) received(proxy int, d *digest, response []byte, at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.met[proxy] == r.complete {
		return
	}
	met, known := r.known[d]
	if !known {
		for i, e := range r.expected {
			if e.met(d.typeURL, response) {
				met |= 1 << i
			}
		}
		r.known[d] = met
	}
	if r.met[proxy] |= met; r.met[proxy] != r.complete {
		return
	}
	r.times[proxy] = at
	if r.lack--; r.lack == 0 {
		close(r.done)
	}
}

// Await waits until all proxies have received all that was expected. It returns when each had.
func (r *Receipt) Await(ctx context.Context) ([]time.Time, error) {
	select {
	case <-r.done:
		return r.times, nil
	case <-ctx.Done():
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return nil, fmt.Errorf("%d of %d proxies were not sent what was expected: %w", r.lack, len(r.times), ctx.Err())
}
