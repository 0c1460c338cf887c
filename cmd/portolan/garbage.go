package main

import (
	"context"
	"runtime"
	"runtime/metrics"
	"time"
)

const (
	// heapTick is how often the heap is looked at while there is work, and restTicks
	// how many are between two looks once there was none for as many.
	heapTick  = 100 * time.Millisecond
	restTicks = 10
)

// collectWhenQuiet collects garbage while nothing else happens, until ctx ends. Go
// collects when the heap is full, which is in the middle of a change, and takes
// half of the processors from it; collected ahead of that, few changes meet it
// (after "Idle Time Garbage Collection Scheduling", PLDI 2016). A process that is
// never quiet collects as Go does.
func collectWhenQuiet(ctx context.Context, tick time.Duration) error {
	timer := time.NewTimer(tick)
	defer timer.Stop()
	last := heap{}.read()
	for quiet := 0; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		now := last.read()
		if quiet++; now.busy(last) {
			quiet = 0
		} else if quiet < restTicks && now.due() { // later the next change may be about to come
			runtime.GC()
			now = now.read()
		}
		last = now
		if quiet < restTicks {
			timer.Reset(tick)
		} else {
			timer.Reset(restTicks * tick)
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

// due says whether half of the room is used.
func (h heap) due() bool { return h.room > 0 && h.allocated-h.collected >= h.room/2 }

// busy says whether there was work since last: as much was allocated between two
// looks as would fill the room in a hundred times that, or Go has collected.
func (h heap) busy(last heap) bool {
	return h.cycles != last.cycles || h.allocated-last.allocated > h.room/100
}
