package cachetest

import (
	"fmt"
	"math/rand/v2"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// Mutate applies a random batch: one to four objects of twenty, put or removed.
func (r *Rig) Mutate(random *rand.Rand, round int) {
	r.t.Helper()
	ops := map[string]storage.Op{}
	for range 1 + random.IntN(4) {
		name := fmt.Sprint("x", random.IntN(20))
		ops[name] = Put("a", name, round)
		if _, err := r.Store.Get(r.t.Context(), schema.ServiceEntry, name, "a"); err == nil && random.IntN(3) == 0 {
			ops[name] = Remove("a", name)
		}
	}
	var batch []storage.Op
	for _, op := range ops {
		batch = append(batch, op)
	}
	r.Apply(batch...)
}

// Fold adds up the events of a handler of service entries.
type Fold struct {
	r       *Rig
	objects pmap.Map[*config.Config] // written by the worker
}

// Fold registers a handler that checks each event against those before it.
func (r *Rig) Fold() *Fold {
	r.t.Helper()
	f := &Fold{r: r}
	r.Handler(schema.ServiceEntry, func(old, curr *config.Config, event cache.Event) {
		object := curr
		if object == nil {
			object = old
		}
		path := object.Meta.Key().Path()
		if f.objects.Value(path) != old || (event == cache.EventAdd) != (old == nil) || (event == cache.EventDelete) != (curr == nil) {
			r.t.Errorf("%s: the handler knew round %s", Describe(old, curr, event), Round(f.objects.Value(path)))
		}
		if curr == nil {
			f.objects = f.objects.Delete(path)
		} else {
			f.objects = f.objects.Set(path, curr)
		}
	})
	return f
}

// Check fails the test unless the events add up to Handled. The worker must be idle.
func (f *Fold) Check() {
	f.r.t.Helper()
	f.r.Quiesce()
	if !pmap.Equal(f.objects, f.r.Cache.Handled().Configs()) {
		f.r.t.Errorf("the events do not add up to the objects of revision %s", f.r.Cache.Handled().Version())
	}
}
