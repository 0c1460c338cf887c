package main

import (
	"context"
	"runtime"
	"runtime/metrics"
	"time"
)

// quietTick is how often the heap is looked at.
const quietTick = 100 * time.Millisecond

// collectWhenQuiet collects garbage while nothing else happens, until ctx ends. Go
// collects when the heap is full, which is in the middle of a change, and takes
// half of the processors from it; collected ahead of that, few changes meet it
// (after "Idle Time Garbage Collection Scheduling", PLDI 2016). A process that is
// never quiet collects as Go does.
func collectWhenQuiet(ctx context.Context, tick time.Duration) error {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	last := heap{}.read()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		if now := last.read(); now.due(last) {
			runtime.GC()
			last = now.read()
		} else {
			last = now
		}
	}
}

// heap is where the heap stands; all but cycles in bytes.
type heap struct {
	allocated uint64 // since the process began
	collected uint64 // what was allocated when the last collection was seen
	room      uint64 // what may be allocated from one collection to the next
	cycles    uint64 // collections
}

// read is where the heap stands after h.
func (h heap) read() heap {
	samples := []metrics.Sample{
		{Name: "/gc/heap/allocs:bytes"}, {Name: "/gc/heap/goal:bytes"}, {Name: "/gc/heap/live:bytes"}, {Name: "/gc/cycles/total:gc-cycles"},
	}
	metrics.Read(samples)
	allocated, goal, live, cycles := samples[0].Value.Uint64(), samples[1].Value.Uint64(), samples[2].Value.Uint64(), samples[3].Value.Uint64()
	if cycles != h.cycles {
		h.collected = allocated
	}
	h.allocated, h.room, h.cycles = allocated, goal-min(live, goal), cycles
	return h
}

// quietTicks is how many ticks the room has to last for, as it is used in one that
// is quiet: ten seconds of them.
const quietTicks = 100

// due says whether half of the room is used, and hardly any was since last.
func (h heap) due(last heap) bool {
	return h.cycles == last.cycles && h.room > 0 &&
		h.allocated-h.collected >= h.room/2 &&
		h.allocated-last.allocated <= h.room/quietTicks
}
