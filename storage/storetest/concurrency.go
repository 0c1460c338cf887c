package storetest

import (
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
)

const (
	writers = 6
	rounds  = 8
)

// together runs writers at once and reports their errors.
func (f *fixture) together(write func(writer int) error) {
	f.Helper()
	var group sync.WaitGroup
	for i := range writers {
		group.Go(func() {
			if err := write(i); err != nil {
				f.Errorf("writer %d: %v", i, err)
			}
		})
	}
	group.Wait()
	if f.Failed() {
		f.FailNow()
	}
}

// counter is an object whose label n is a number.
func counter(name string, n int) *config.Config {
	c := entry("shop", name)
	c.Labels["n"] = strconv.Itoa(n)
	return c
}

// increment adds one to a counter by compare and swap, and retries on conflicts.
func (f *fixture) increment(name string) error {
	for {
		now, err := f.store.Get(f.Context(), schema.ServiceEntry, name, "shop")
		if err != nil {
			return err
		}
		n, err := strconv.Atoi(now.Labels["n"])
		if err != nil {
			return err
		}
		_, err = f.store.Update(f.Context(), versioned(counter(name, n+1), now.ResourceVersion))
		if !errors.Is(err, storage.ErrConflict) {
			return err
		}
	}
}

var concurrencyTests = []test{
	{"conditional updates lose nothing", func(f *fixture) {
		f.create(counter("a", 0))
		f.together(func(int) error {
			for range rounds {
				if err := f.increment("a"); err != nil {
					return err
				}
			}
			return nil
		})
		f.wantContent(counter("a", writers*rounds))
	}},
	{"one of several creates wins", func(f *fixture) {
		var won atomic.Int64
		f.together(func(i int) error {
			_, err := f.store.Create(f.Context(), counter("a", i))
			if err == nil {
				won.Add(1)
			} else if !errors.Is(err, storage.ErrExists) {
				return err
			}
			return nil
		})
		if won.Load() != 1 {
			f.Errorf("%d creates were acknowledged", won.Load())
		}
	}},
	{"unconditional updates all go through", func(f *fixture) {
		f.create(counter("a", 0))
		f.together(func(i int) error {
			for n := range rounds {
				if _, err := f.store.Update(f.Context(), counter("a", 1+i*rounds+n)); err != nil {
					return err
				}
			}
			return nil
		})
	}},
	{"batches never mix, and no list shows half of one", func(f *fixture) {
		batcher := f.batcher()
		batch := func(n int) (ops []storage.Op) {
			for i := range 10 {
				ops = append(ops, op(storage.Put, counter(fmt.Sprintf("c%d", i), n)))
			}
			return ops
		}
		f.apply(batch(0)...)
		f.together(func(i int) error {
			for n := range rounds {
				if _, _, err := batcher.Apply(f.Context(), batch(1+i*rounds+n)); err != nil {
					return err
				}
				objects, err := f.store.List(f.Context(), schema.ServiceEntry, "")
				if err != nil {
					return err
				}
				for _, o := range objects {
					if o.ResourceVersion != objects[0].ResourceVersion || o.Labels["n"] != objects[0].Labels["n"] {
						return fmt.Errorf("%s is %s at %s, %s is %s at %s", o.Key(), o.Labels["n"], o.ResourceVersion,
							objects[0].Key(), objects[0].Labels["n"], objects[0].ResourceVersion)
					}
				}
			}
			return nil
		})
	}},
}
