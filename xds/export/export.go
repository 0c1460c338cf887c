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
	// Schemas are the kinds of the mesh. Internal kinds are not exported, nor are kinds whose
	// specs are not protobuf messages.
	Schemas schema.Set
	// AllSources exports the effective objects of all sources. Otherwise only objects of the
	// store are exported. So two meshes that import each other's objects do not send them back.
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
	byURL   map[string]int // the same by each of its types

	newest atomic.Pointer[snapshot] // nil before the first, and while there is no member

	mu      sync.Mutex // guards the fields below; held while resources are built
	members int
}

// snapshot holds the resources of one context, by kind. It is never modified.
type snapshot struct {
	push *mesh.PushContext
	sets []resource.Set
}

// New returns an Export of the kinds in the options that other control planes may see.
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

// TypeURL returns the type URL of a kind's resources, as Istio names it.
func TypeURL(group, version, kind string) string {
	return cmp.Or(group, "core") + "/" + version + "/" + kind
}

// Types returns the exported types: each kind in each of its versions, the canonical version
// first. The caller must not modify it.
func (e *Export) Types() []Type { return e.types }

// advance updates the resources to the newest context, and returns them.
func (e *Export) advance(newest func() *mesh.PushContext) *snapshot {
	if s := e.newest.Load(); s != nil && s.push == newest() {
		return s
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	from, to := e.newest.Load(), newest()
	if from != nil && from.push == to {
		return from
	}
	next := &snapshot{push: to}
	if from == nil {
		next.sets = e.all(to.Inputs().Configs)
	} else {
		next.sets = e.follow(from, to.Inputs().Configs)
	}
	e.newest.Store(next)
	return next
}

// all builds the resources of a snapshot from nothing.
func (e *Export) all(configs *cache.Snapshot) []resource.Set {
	sets := make([]resource.Set, len(e.kinds))
	for i, kind := range e.kinds {
		sets[i] = resource.FromSorted(func(yield func(string, *resource.Resource) bool) {
			for object := range configs.List(kind, "") { // in the order of resource names
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

// follow returns the resources of a snapshot, derived from an earlier one by the objects that
// differ.
func (e *Export) follow(from *snapshot, to *cache.Snapshot) []resource.Set {
	before := from.push.Inputs().Configs
	if before.Configs() == to.Configs() && before.Shadows() == to.Shadows() {
		return from.sets
	}
	sets := slices.Clone(from.sets)
	for c := range pmap.Diff(before.Configs(), to.Configs()) {
		e.put(sets, to, cmp.Or(c.New, c.Old))
	}
	if !e.options.AllSources { // a change in the store may be hidden behind another source's object
		for c := range pmap.Diff(before.Shadows(), to.Shadows()) {
			e.put(sets, to, cmp.Or(c.New, c.Old).Objects[0])
		}
	}
	return sets
}

// put updates the resource of one key to a snapshot. changed is an object of the key.
func (e *Export) put(sets []resource.Set, configs *cache.Snapshot, changed *config.Config) {
	kind, exported := e.byPath[config.KindPath(changed.GroupVersionKind)]
	if !exported {
		return
	}
	object := configs.Get(changed.Key())
	if object != nil {
		object = e.exported(configs, object)
	}
	if object == nil {
		sets[kind] = sets[kind].Delete(nameOf(changed))
	} else if r := e.build(object); r != nil {
		sets[kind] = sets[kind].Set(r.Name, r)
	}
}

// exported returns the object of a key that is exported, nil for none. object is the one that
// is in effect.
func (e *Export) exported(configs *cache.Snapshot, object *config.Config) *config.Config {
	if e.options.AllSources || object.Source == "" {
		return object
	}
	return configs.Stored(object.Key())
}

// If the resource cannot be encoded, clients keep the last good one.
func (e *Export) build(object *config.Config) *resource.Resource {
	r, err := Resource(object)
	if err != nil {
		e.options.Logger.Error("an object cannot be exported: write it again", "key", object.Key().String(), "err", err)
		return nil
	}
	return r
}

// join adds a member, leave removes one. Without members the Export holds nothing.
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
