package serve

import (
	"context"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"github.com/portolan-mesh/portolan/storage/pulse"
)

const (
	// heapTick is how often the heap is looked at while there is work, and restTicks
	// how many are between two looks once there was none for as many.
	heapTick  = 100 * time.Millisecond
	restTicks = 10
	// idleBytes is more than a server allocates between two looks at rest.
	idleBytes = 512 << 10
	// giveBackAfter is when memory is given back to the system after the last collection,
	// and giveBackFrom how much the process has to hold for that.
	giveBackAfter = 40 * time.Second
	giveBackFrom  = 64 << 20
)

// collectWhenQuiet collects garbage while nothing else happens, until ctx ends. By
// itself Go collects when the heap is full, which is in the middle of a change, and
// takes half of the processors. Collecting earlier spares most changes that (after
// "Idle Time Garbage Collection Scheduling", PLDI 2016). A process that is never quiet
// collects as Go does.
//
// After a while without a collection it returns the memory of a burst to the system. Go
// would notice the unused memory only after two minutes, and return it slowly.
func collectWhenQuiet(ctx context.Context, tick, giveBack time.Duration) error {
	timer := time.NewTimer(tick)
	defer timer.Stop()
	last := heap{}.read()
	collected := time.Now()
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
		if now.cycles != last.cycles {
			collected = time.Now()
		} else if now.held > giveBackFrom && time.Since(collected) > giveBack {
			debug.FreeOSMemory()
			now, collected = now.read(), time.Now()
		}
		last = now
		if quiet < restTicks {
			timer.Reset(tick)
		} else {
			timer.Reset(pulse.Until(restTicks * tick))
		}
	}
}

// heap is a reading of the heap; all but cycles in bytes.
type heap struct {
	allocated uint64 // since the process began
	collected uint64 // what was allocated when the last collection was seen
	room      uint64 // what may be allocated from one collection to the next
	cycles    uint64 // collections
	held      uint64 // by the process, of the system
}

// read reads the heap again.
func (h heap) read() heap {
	samples := []metrics.Sample{
		{Name: "/gc/heap/allocs:bytes"}, {Name: "/gc/heap/goal:bytes"}, {Name: "/gc/heap/live:bytes"}, {Name: "/gc/cycles/total:gc-cycles"},
		{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"},
	}
	metrics.Read(samples)
	allocated, goal, live, cycles := samples[0].Value.Uint64(), samples[1].Value.Uint64(), samples[2].Value.Uint64(), samples[3].Value.Uint64()
	if cycles != h.cycles {
		h.collected = allocated
	}
	h.held = samples[4].Value.Uint64() - samples[5].Value.Uint64()
	h.allocated, h.room, h.cycles = allocated, goal-min(live, goal), cycles
	return h
}

// due says whether half of the room is used.
func (h heap) due() bool { return h.room > 0 && h.allocated-h.collected >= h.room/2 }

// busy says whether there was work since last: Go has collected, or so much was
// allocated between two looks that a hundred looks would fill the room. idleBytes is
// what an idle server allocates, and no work, however little room there is.
func (h heap) busy(last heap) bool {
	return h.cycles != last.cycles || h.allocated-last.allocated > max(h.room/100, idleBytes)
}
