package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
)

// changes is how many changes are made to measure the allocations of one.
const changes = 1000

// cost is what one change allocates in a cache of so many objects.
type cost struct {
	objects       int
	allocs, bytes float64
}

func (c cost) String() string {
	return fmt.Sprintf("%.0f allocations, %.1f KiB", c.allocs, c.bytes/1024)
}

// costOfChange returns what one change allocates in the cache. The allocations of a put and a
// watch by the plain client are measured separately and subtracted.
func (b *bench) costOfChange(ctx context.Context) (cost, error) {
	toCache, stopCache, err := b.putToCache(ctx)
	if err != nil {
		return cost{}, err
	}
	toWatch, stopWatch, err := b.putToWatch(ctx)
	if err != nil {
		return cost{}, errors.Join(err, stopCache())
	}
	with, err := allocated(toCache)
	without, err2 := allocated(toWatch)
	c, stopped, err3 := b.cache(ctx)
	if err = errors.Join(err, err2, err3, stopCache(), stopWatch()); err != nil {
		return cost{}, err
	}
	objects := c.Snapshot().Configs().Len()
	return cost{objects, with.allocs - without.allocs, with.bytes - without.bytes}, stopped()
}

// allocated returns what one change allocates in this process.
func allocated(once change) (cost, error) {
	for range changes / 10 { // to warm up
		if _, err := once(); err != nil {
			return cost{}, err
		}
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range changes {
		if _, err := once(); err != nil {
			return cost{}, err
		}
	}
	runtime.ReadMemStats(&after)
	return cost{
		allocs: float64(after.Mallocs-before.Mallocs) / changes,
		bytes:  float64(after.TotalAlloc-before.TotalAlloc) / changes,
	}, nil
}

// compareCosts adds the lines for a small and a large cache to the report.
func (b *bench) compareCosts(small, large cost) {
	b.add(line{
		fmt.Sprintf("one change among %d, beside %d objects", large.objects, small.objects),
		small.String(), large.String(), large.allocs / small.allocs, limit{ratio: 2},
	})
}
