package desired

import (
	"cmp"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/xds/desired/memo"
	"github.com/portolan-mesh/portolan/xds/generate"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/mesh/origins"
)

// failure is why a resource cannot be built; the zero one is none.
type failure struct{ typeName, name, message string }

// failing is what is known of a failure while it lasts.
type failing struct {
	since   time.Time
	holders int // number of groups and workloads whose resource fails so
	objects map[string]struct{}
}

// failures are the resources that cannot be built. Proxies keep the last good form of
// each, where there is one. They are safe for concurrent use.
type failures struct {
	logger  *slog.Logger
	changed func() // called after each change

	mu  sync.Mutex // guards all
	all map[failure]*failing
}

func newFailures(logger *slog.Logger, changed func()) *failures {
	return &failures{logger: logger, changed: changed, all: map[failure]*failing{}}
}

// noted notes that a resource could not be built, and returns the failure. before is the
// earlier failure of the resource, if any. reads are the rows of its last good form, in
// case err is no memo.Failure, which has its own.
func (f *failures) noted(before failure, typeName, name string, err error, reads []mesh.Dependency) failure {
	is := failure{typeName, name, err.Error()}
	if is == before {
		return is
	}
	if known := (*memo.Failure)(nil); errors.As(err, &known) {
		reads = known.Reads
	}
	objects := origins.Of(reads)
	if len(objects) > 1 { // the mesh configuration is behind nearly all resources
		objects = slices.DeleteFunc(objects, func(key config.Key) bool { return key.Kind == schema.MeshConfig })
	}
	f.mu.Lock()
	now := f.all[is]
	first := now == nil
	if first {
		now = &failing{since: time.Now(), objects: map[string]struct{}{}}
		f.all[is] = now
	}
	now.holders++
	for _, key := range objects {
		now.objects[key.Path()] = struct{}{}
	}
	f.mu.Unlock()
	f.cleared(before)
	if first {
		f.log(is, err, objects)
	}
	f.changed()
	return is
}

// log logs once that a resource cannot be built.
func (f *failures) log(is failure, err error, objects []config.Key) {
	args := []any{"type", is.typeName, "name", is.name, "objects", objects, "err", err}
	if p := (*generate.Panic)(nil); errors.As(err, &p) {
		args = append(args, "stack", string(p.Stack))
	}
	f.logger.Error("resource not built, proxies keep the last good one", args...)
}

// cleared takes back the failure of one holder. It does nothing for the zero failure.
func (f *failures) cleared(was failure) {
	if was == (failure{}) {
		return
	}
	f.mu.Lock()
	now := f.all[was]
	now.holders--
	last := now.holders == 0
	if last {
		delete(f.all, was)
	}
	f.mu.Unlock()
	if last {
		f.changed()
	}
}

// A Failure is a resource that cannot be built.
type Failure struct {
	Type, Name, Message string
	Since               time.Time
	Objects             []string // paths of the objects that it is built from, in order
}

// list returns the failures in the order of type, name and message.
func (f *failures) list() []Failure {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := make([]Failure, 0, len(f.all))
	for is, now := range f.all {
		out = append(out, Failure{is.typeName, is.name, is.message, now.since, slices.Sorted(maps.Keys(now.objects))})
	}
	slices.SortFunc(out, func(a, b Failure) int {
		return cmp.Or(strings.Compare(a.Type, b.Type), strings.Compare(a.Name, b.Name), strings.Compare(a.Message, b.Message))
	})
	return out
}
