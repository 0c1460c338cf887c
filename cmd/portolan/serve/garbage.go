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
	// heapTick is how often the heap is checked while there is work. After restTicks checks
	// without work, it is checked only once in restTicks.
	heapTick  = 100 * time.Millisecond
	restTicks = 10
	// idleBytes is more than an idle server allocates between two checks.
	idleBytes = 512 << 10
	// giveBackAfter is how long after the last collection memory is returned to the system.
	// giveBackFrom is the least memory that the process must hold for that.
	giveBackAfter = 40 * time.Second
	giveBackFrom  = 64 << 20
)

// collectWhenQuiet collects garbage while nothing else happens, until ctx ends. Go itself
// collects when the heap is full, which is in the middle of a change, and takes half of the
// processors. Collecting earlier spares most changes that (after "Idle Time Garbage Collection
// Scheduling", PLDI 2016). In a process that is never quiet, only Go collects.
//
// After a time without a collection it returns the memory of a burst to the system. Go itself
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
		} else if quiet < restTicks && now.due() { // later than that, the next change may be about to come
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

// All fields but cycles are in bytes.
type heap struct {
	allocated uint64 // allocated since the process began
	collected uint64 // value of allocated when the last collection was seen
	room      uint64 // what may be allocated between two collections
	cycles    uint64 // number of collections
	held      uint64 // memory that the process holds of the system's
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

// busy says whether there was work since last: Go has collected, or so much was allocated
// between two checks that a hundred checks would fill the room. Up to idleBytes is never work,
// however little room there is, because an idle server allocates that much.
func (h heap) busy(last heap) bool {
	return h.cycles != last.cycles || h.allocated-last.allocated > max(h.room/100, idleBytes)
}
