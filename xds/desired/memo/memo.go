package memo

import (
	"hash/maphash"
	"iter"
	"maps"
	"slices"
	"sync"

	"github.com/portolan-mesh/portolan/xds/generate"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// Memo keeps built resources. It is safe for concurrent use; building goes on outside
// its lock.
type Memo struct {
	// Uses counts the objects that the resources kept here were made of. Workloads count
	// in those of their own resources.
	Uses Uses

	mu       sync.Mutex
	families map[familyKey]*family
	composed map[composedID]*Built

	// A name is built under one of these locks, so that others who need it at the same
	// time find the result.
	building [64]sync.Mutex
	seed     maphash.Seed
}

// familyKey names the resources of one type for proxies of one shape: only these can
// share them. own are those of workloads.
type familyKey struct {
	typeURL string
	shape   mesh.Shape
	own     bool
}

func keyOf(typeURL string, shape mesh.Shape, own bool) familyKey {
	return familyKey{typeURL, mesh.PatchedFor(shape, typeURL), own}
}

// family holds the resources of one type and shape. Its fields are guarded by Memo.mu.
type family struct {
	built map[string][]*Built // by name: those in use, the newest last
	// readers has, for a row, the names that were built from it, and by how many
	// reads.
	readers map[mesh.RowKey]map[string]int
}

// covering is a resource under a version that also covers one version of its parent: the
// endpoints of a cluster, for one version of the cluster.
type covering struct {
	parent   string
	resource *resource.Resource
}

// maxUnder bounds how many versions of a parent a resource is kept under: as many as the
// groups that share it may see at one time.
const maxUnder = 4

// New returns an empty memo.
func New() *Memo {
	return &Memo{families: map[familyKey]*family{}, composed: map[composedID]*Built{}, seed: maphash.MakeSeed()}
}

// Build returns a resource as a view has it: a present one that holds in this view, or
// a new one. If several callers want one name at the same time one of them builds, and
// the others look at its result. The caller holds the resource until Release. The error
// is a *Failure.
func (m *Memo) Build(v *mesh.View, g generate.Generator, name string) (*Built, error) {
	return m.build(m.family(keyOf(g.TypeURL(), v.Shape(), false)), v, g, name)
}

// BuildOwn is Build for a resource of a workload: workloads for which it would be built from the
// same share it.
func (m *Memo) BuildOwn(v *mesh.View, g generate.Generator, name string) (*Built, error) {
	return m.build(m.family(keyOf(g.TypeURL(), v.Shape(), true)), v, g, name)
}

func (m *Memo) build(f *family, v *mesh.View, g generate.Generator, name string) (*Built, error) {
	if b := m.find(v, f, name); b != nil {
		return b, nil
	}
	defer m.lock(name).Unlock()
	if b := m.find(v, f, name); b != nil {
		return b, nil // another caller has built it
	}
	b, err := Alone(v, g, name)
	if err != nil {
		return nil, err
	}
	b.family, b.users = f, 1
	m.add(b)
	return b, nil
}

// lock waits for others who build a name, and returns the lock.
func (m *Memo) lock(name string) *sync.Mutex {
	building := &m.building[maphash.String(m.seed, name)%uint64(len(m.building))]
	building.Lock()
	return building
}

// find returns a resource that holds in the view, and counts its use; nil if there is none.
func (m *Memo) find(v *mesh.View, f *family, name string) *Built {
	m.mu.Lock()
	candidates := f.built[name]
	m.mu.Unlock()
	for _, b := range slices.Backward(candidates) {
		if b.Holds(v) && m.use(b) {
			return b
		}
	}
	return nil
}

// family finds or makes a family.
func (m *Memo) family(key familyKey) *family {
	m.mu.Lock()
	defer m.mu.Unlock()
	f := m.families[key]
	if f == nil {
		f = &family{built: map[string][]*Built{}, readers: map[mesh.RowKey]map[string]int{}}
		m.families[key] = f
	}
	return f
}

// use counts a user in. It returns false if the resource has just lost its last user.
func (m *Memo) use(b *Built) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if b.users == 0 {
		return false
	}
	b.users++
	return true
}

// add takes a resource in. Lists are replaced, never modified: find reads them without the
// lock.
func (m *Memo) add(b *Built) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.Uses.Replace(nil, b)
	f := b.family
	f.built[b.name] = append(slices.Clip(f.built[b.name]), b)
	for row := range b.rows() {
		if f.readers[row] == nil {
			f.readers[row] = map[string]int{}
		}
		f.readers[row][b.name]++
	}
}

// Share counts one more user of each resource. The caller makes sure that each keeps a
// user meanwhile.
func (m *Memo) Share(all iter.Seq[*Built]) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for b := range all {
		b.users++
	}
}

// Release counts a user of each resource out, and ignores nil. A resource without users
// is forgotten.
func (m *Memo) Release(all ...*Built) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, b := range all {
		if b == nil {
			continue
		}
		switch b.users--; {
		case b.users > 0:
		case b.composed != nil:
			delete(m.composed, *b.composed)
		default:
			m.Uses.Replace(b, nil)
			b.family.forget(b)
		}
	}
}

// forget takes a resource out. The caller holds the lock.
func (f *family) forget(b *Built) {
	left := slices.DeleteFunc(slices.Clone(f.built[b.name]), func(o *Built) bool { return o == b })
	if len(left) == 0 {
		delete(f.built, b.name)
	} else {
		f.built[b.name] = left
	}
	for row := range b.rows() {
		names := f.readers[row]
		if names[b.name]--; names[b.name] == 0 {
			delete(names, b.name)
		}
		if len(names) == 0 {
			delete(f.readers, row)
		}
	}
}

// Readers returns, in order, the names of the resources of a type, among
// proxies of one shape, that were built from any of the rows.
func (m *Memo) Readers(typeURL string, shape mesh.Shape, rows []mesh.RowKey) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	f := m.families[keyOf(typeURL, shape, false)]
	if f == nil {
		return nil
	}
	names := map[string]struct{}{}
	for _, row := range rows {
		for name := range f.readers[row] {
			names[name] = struct{}{}
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// Under returns a resource with a version that also covers the version of what needs it.
// Equal calls return the same resource.
func (m *Memo) Under(b *Built, parentVersion string) *resource.Resource {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, c := range b.under {
		if c.parent == parentVersion {
			last := len(b.under) - 1
			b.under[i], b.under[last] = b.under[last], c
			return c.resource
		}
	}
	c := covering{parentVersion, b.Resource.Under(parentVersion)}
	if len(b.under) == maxUnder {
		b.under = slices.Delete(b.under, 0, 1)
	}
	b.under = append(b.under, c)
	return c.resource
}

// Len returns the number of resources in use.
func (m *Memo) Len() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := len(m.composed)
	for _, f := range m.families {
		for _, built := range f.built {
			n += len(built)
		}
	}
	return n
}
