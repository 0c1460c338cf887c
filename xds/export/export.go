package export

import (
	"cmp"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"

	"google.golang.org/protobuf/proto"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// Options configure an Export.
type Options struct {
	// Schemas are the kinds of the mesh. Internal ones are not exported, nor are those
	// whose specs are no messages.
	Schemas schema.Set
	// AllSources exports the objects of all sources, as far as they count. Otherwise only
	// the objects of the store are exported, so that two meshes which take each other's
	// objects do not send back what they took.
	AllSources bool
	Logger     *slog.Logger
}

// Type is a resource type: a kind in one of its API versions. All versions of a kind have
// the same resources.
type Type struct {
	// Name is the kind.
	Name string
	// URL is group/version/kind.
	URL string

	kind int // index of the kind
}

// Export holds the resources of all exported kinds. It is safe for concurrent use.
type Export struct {
	options Options
	kinds   []config.GroupVersionKind
	types   []Type
	byPath  map[string]int // the index of a kind by its KindPath
	byURL   map[string]int // and by each of its types

	newest atomic.Pointer[snapshot] // nil before the first, and while there is no member

	mu      sync.Mutex // guards the fields below; held while resources are built
	members int
}

// snapshot holds the resources of one context, by kind. It is never modified.
type snapshot struct {
	context *mesh.PushContext
	sets    []resource.Set
}

// New returns an Export of the kinds that other control planes may have.
func New(o Options) *Export {
	e := &Export{options: o, byPath: map[string]int{}, byURL: map[string]int{}}
	for _, s := range o.Schemas.All() {
		if _, isMessage := s.Codec.New().(proto.Message); s.Internal || !isMessage {
			continue
		}
		kind := len(e.kinds)
		e.kinds = append(e.kinds, s.GroupVersionKind)
		e.byPath[config.KindPath(s.GroupVersionKind)] = kind
		for _, version := range s.Versions {
			url := TypeURL(s.Group, version, s.Kind)
			e.types, e.byURL[url] = append(e.types, Type{Name: s.Kind, URL: url, kind: kind}), kind
		}
	}
	return e
}

// TypeURL is the type of the resources that are objects of a kind, as Istio names it.
func TypeURL(group, version, kind string) string {
	return cmp.Or(group, "core") + "/" + version + "/" + kind
}

// Types are the exported types: each kind in each of its versions, the canonical one first.
// The caller must not modify it.
func (e *Export) Types() []Type { return e.types }

// advance brings the resources to the newest context, and returns them.
func (e *Export) advance(newest func() *mesh.PushContext) *snapshot {
	if s := e.newest.Load(); s != nil && s.context == newest() {
		return s
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	from, to := e.newest.Load(), newest()
	if from != nil && from.context == to {
		return from
	}
	next := &snapshot{context: to}
	if from == nil {
		next.sets = e.all(to.Inputs().Configs)
	} else {
		next.sets = e.follow(from, to.Inputs().Configs)
	}
	e.newest.Store(next)
	return next
}

// all makes the resources of a snapshot of the configuration from nothing.
func (e *Export) all(configs *cache.Snapshot) []resource.Set {
	sets := make([]resource.Set, len(e.kinds))
	for i, kind := range e.kinds {
		sets[i] = resource.FromSorted(func(yield func(string, *resource.Resource) bool) {
			for object := range configs.List(kind, "") { // in the order of the names of resources
				exported := e.exported(configs, object)
				if exported == nil {
					continue
				}
				if r := e.build(exported); r != nil && !yield(r.Name, r) {
					return
				}
			}
		})
	}
	return sets
}

// follow takes the resources of an earlier snapshot on, by the objects that differ.
func (e *Export) follow(from *snapshot, to *cache.Snapshot) []resource.Set {
	before := from.context.Inputs().Configs
	if before.Configs() == to.Configs() && before.Shadows() == to.Shadows() {
		return from.sets
	}
	sets := slices.Clone(from.sets)
	for c := range pmap.Diff(before.Configs(), to.Configs()) {
		e.put(sets, to, cmp.Or(c.New, c.Old))
	}
	if !e.options.AllSources { // an object of the store may change behind another source's
		for c := range pmap.Diff(before.Shadows(), to.Shadows()) {
			e.put(sets, to, cmp.Or(c.New, c.Old).Objects[0])
		}
	}
	return sets
}

// put brings the resource of one key in line with a snapshot. of is an object of the key.
func (e *Export) put(sets []resource.Set, configs *cache.Snapshot, of *config.Config) {
	kind, exported := e.byPath[config.KindPath(of.GroupVersionKind)]
	if !exported {
		return
	}
	object := configs.Get(of.Key())
	if object != nil {
		object = e.exported(configs, object)
	}
	if object == nil {
		sets[kind] = sets[kind].Delete(nameOf(of))
	} else if r := e.build(object); r != nil {
		sets[kind] = sets[kind].Set(r.Name, r)
	}
}

// exported returns the object of a key that is exported, nil for none. object is the one
// that counts.
func (e *Export) exported(configs *cache.Snapshot, object *config.Config) *config.Config {
	if e.options.AllSources || object.Source == "" {
		return object
	}
	return configs.Stored(object.Key())
}

// build makes the resource of an object. If that cannot be encoded clients keep its last
// form.
func (e *Export) build(object *config.Config) *resource.Resource {
	r, err := Resource(object)
	if err != nil {
		e.options.Logger.Error("an object cannot be exported: write it again", "key", object.Key().String(), "err", err)
		return nil
	}
	return r
}

// join counts a member in, leave one out. Without members nothing is held.
func (e *Export) join() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.members++
}

func (e *Export) leave() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.members--; e.members == 0 {
		e.newest.Store(nil)
	}
}
