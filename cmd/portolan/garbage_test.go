package main

import (
	"context"
	"runtime"
	"runtime/metrics"
	"testing"
	"time"
)

func TestCollectionIsDue(t *testing.T) {
	const room = 1000
	last := heap{allocated: 10_600, collected: 10_000, room: room, cycles: 7}
	for name, c := range map[string]struct {
		now  heap
		want bool
	}{
		"half of the room is used":       {heap{allocated: 10_605, collected: 10_000, room: room, cycles: 7}, true},
		"less than half is":              {heap{allocated: 10_605, collected: 10_200, room: room, cycles: 7}, false},
		"there is work":                  {heap{allocated: 10_650, collected: 10_000, room: room, cycles: 7}, false},
		"Go has collected meanwhile":     {heap{allocated: 10_605, collected: 10_605, room: room, cycles: 8}, false},
		"the heap may grow without end":  {heap{allocated: 10_605, collected: 10_000, room: 1 << 63, cycles: 7}, false},
		"there is no room":               {heap{allocated: 10_600, collected: 10_000, cycles: 7}, false},
		"all is used, and it goes on":    {heap{allocated: 11_600, collected: 10_000, room: room, cycles: 7}, false},
		"as much as ten seconds can use": {heap{allocated: 10_610, collected: 10_000, room: room, cycles: 7}, true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := c.now.due(last); got != c.want {
				t.Errorf("due is %v", got)
			}
		})
	}
}

// TestAQuietProcessCollects makes garbage now and then, much less than Go waits
// for, and nobody else asks for it to be collected.
func TestAQuietProcessCollects(t *testing.T) {
	held := make([]byte, 64<<20) // as much as may be allocated until Go collects
	runtime.GC()
	before := forcedCollections()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- collectWhenQuiet(ctx, time.Millisecond) }()
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

var garbage []byte // on the heap

// forcedCollections is how often a collection was asked for.
func forcedCollections() uint64 {
	sample := []metrics.Sample{{Name: "/gc/cycles/forced:gc-cycles"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}
