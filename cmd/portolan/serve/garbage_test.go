package serve

import (
	"context"
	"runtime"
	"runtime/metrics"
	"testing"
	"time"
)

func TestHeap(t *testing.T) {
	const mib = 1 << 20
	const room = 1000 * mib
	last := heap{allocated: 10_600 * mib, collected: 10_000 * mib, room: room, cycles: 7}
	for name, c := range map[string]struct {
		now       heap
		due, busy bool
	}{
		"half of the room is used":      {now: heap{allocated: 10_605 * mib, collected: 10_000 * mib, room: room, cycles: 7}, due: true},
		"less than half is":             {now: heap{allocated: 10_605 * mib, collected: 10_200 * mib, room: room, cycles: 7}},
		"there is work":                 {now: heap{allocated: 10_650 * mib, collected: 10_000 * mib, room: room, cycles: 7}, due: true, busy: true},
		"Go has collected meanwhile":    {now: heap{allocated: 10_605 * mib, collected: 10_605 * mib, room: room, cycles: 8}, busy: true},
		"the heap may grow without end": {now: heap{allocated: 10_605 * mib, collected: 10_000 * mib, room: 1 << 63, cycles: 7}},
		"there is no room":              {now: heap{allocated: 10_605 * mib, collected: 10_000 * mib, cycles: 7}, busy: true},
		"what a server at rest takes":   {now: heap{allocated: 10_600*mib + idleBytes, collected: 10_600 * mib, room: 4 * mib, cycles: 7}},
		"a hundredth of the room":       {now: heap{allocated: 10_610 * mib, collected: 10_000 * mib, room: room, cycles: 7}, due: true},
	} {
		t.Run(name, func(t *testing.T) {
			if due, busy := c.now.due(), c.now.busy(last); due != c.due || busy != c.busy {
				t.Errorf("due: %v, busy: %v", due, busy)
			}
		})
	}
}

// TestAQuietProcessCollects makes a little garbage from time to time, much less than would
// start a collection by Go. It is collected all the same.
func TestAQuietProcessCollects(t *testing.T) {
	held := make([]byte, 64<<20) // Go would collect after about as much again
	runtime.GC()
	before := forcedCollections()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- collectWhenQuiet(ctx, time.Millisecond, time.Hour) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	limit, poll := time.After(30*time.Second), time.NewTicker(20*time.Millisecond)
	defer poll.Stop()
	for forcedCollections() == before {
		garbage = make([]byte, 4<<20)
		select {
		case <-limit:
			t.Fatal("nothing was collected")
		case <-poll.C:
		}
	}
	runtime.KeepAlive(held)
}

// TestABurstIsGivenBack: the memory of a burst is returned to the system even if nothing else
// is allocated.
func TestABurstIsGivenBack(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- collectWhenQuiet(ctx, time.Millisecond, 50*time.Millisecond) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	const burst = 256 << 20
	garbage = make([]byte, burst)
	for i := range garbage {
		garbage[i] = 1
	}
	before := heap{}.read().held
	garbage = nil
	limit, poll := time.After(30*time.Second), time.NewTicker(20*time.Millisecond)
	defer poll.Stop()
	for now := before; now > before-burst/2; now = (heap{}).read().held {
		select {
		case <-limit:
			t.Fatalf("the process holds %d MiB of the system, and held %d MiB at its burst", now>>20, before>>20)
		case <-poll.C:
		}
	}
}

var garbage []byte // keeps garbage on the heap

// forcedCollections returns how many collections the program has forced.
func forcedCollections() uint64 {
	sample := []metrics.Sample{{Name: "/gc/cycles/forced:gc-cycles"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}
