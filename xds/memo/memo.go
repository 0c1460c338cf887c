package memo

import (
	"iter"
	"maps"
	"slices"
	"sync"

	"github.com/portolan-mesh/portolan/xds/generate"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// Memo is a set of traces. It is safe for concurrent use; building goes on
// outside its lock.
type Memo struct {
	mu       sync.Mutex
	families map[familyKey]*family
	composed map[composedID]*Composed
}

// familyKey names the resources of one type among proxies of one shape, which
// are those that can be shared.
type familyKey struct {
	typeURL string
	shape   mesh.Shape
}

// family is the traces of one type and shape. Its fields are guarded by Memo.mu.
type family struct {
	key      familyKey
	traces   map[string][]*Trace // by name: those in use, the newest last
	building map[string]chan struct{}
	// readers has, for a row, the names that were built from it, and by how many
	// reads.
	readers map[mesh.RowKey]map[string]int
}

// Trace is a resource, nil where there is none of its name, and what it was
// built from. It is held by its users and never modified.
type Trace struct {
	Resource *resource.Resource

	family *family
	name   string
	reads  []mesh.Recorded
	users  int // guarded by Memo.mu
	// under are the versions of the resource that also cover that of a parent, the
	// last used last; guarded by Memo.mu.
	under []child
}

// child is a resource under one version of its parent.
type child struct {
	parent   string
	resource *resource.Resource
}

// maxUnder bounds how many versions of a parent a trace is kept under: those
// that classes which share it see at one time.
const maxUnder = 4

// New returns an empty memo.
func New() *Memo {
	return &Memo{families: map[familyKey]*family{}, composed: map[composedID]*Composed{}}
}

// Build returns the trace of a resource in a view: one that is there already and
// holds in this view, else a new one. Of those who ask for one name at a time one
// builds, and the others look at what comes of it. The caller holds the trace
// until Release.
func (m *Memo) Build(v *mesh.View, g generate.Generator, name string) (*Trace, error) {
	key := familyKey{g.TypeURL(), v.Shape()}
	for {
		t, f, wait := m.find(v, key, name)
		switch {
		case t != nil:
			return t, nil
		case wait != nil:
			<-wait
		default:
			return m.build(v, g, f, name)
		}
	}
}

// build makes a trace, while others of the name wait.
func (m *Memo) build(v *mesh.View, g generate.Generator, f *family, name string) (*Trace, error) {
	var t *Trace
	defer func() { m.add(f, name, t) }()
	recording := v.Recording()
	built, err := g.Build(recording, name)
	if err != nil {
		return nil, err
	}
	t = &Trace{Resource: built, family: f, name: name, reads: recording.Reads(), users: 1}
	return t, nil
}

// find takes a use of a trace that holds in the view. Where none does, it is the
// caller's to build one, unless another builds, for which there is wait.
func (m *Memo) find(v *mesh.View, key familyKey, name string) (t *Trace, f *family, wait <-chan struct{}) {
	m.mu.Lock()
	f = m.family(key)
	candidates := f.traces[name]
	m.mu.Unlock()
	for _, t := range slices.Backward(candidates) {
		if t.holds(v) && m.use(t) {
			return t, f, nil
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if another := f.building[name]; another != nil {
		return nil, f, another
	}
	if len(f.traces[name]) > 0 && !slices.Equal(f.traces[name], candidates) {
		return nil, f, closed // one was added meanwhile
	}
	f.building[name] = make(chan struct{})
	return nil, f, nil
}

// closed is waited for in vain.
var closed = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// family finds or makes a family. The caller holds the lock.
func (m *Memo) family(key familyKey) *family {
	f := m.families[key]
	if f == nil {
		f = &family{
			key: key, traces: map[string][]*Trace{}, building: map[string]chan struct{}{},
			readers: map[mesh.RowKey]map[string]int{},
		}
		m.families[key] = f
	}
	return f
}

// use counts a user in, unless the trace has just lost its last.
func (m *Memo) use(t *Trace) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if t.users == 0 {
		return false
	}
	t.users++
	return true
}

// add takes a trace in, nil where building failed, and lets those go on that
// wait for it. Lists of traces are replaced, never modified: find reads them
// without the lock.
func (m *Memo) add(f *family, name string, t *Trace) {
	m.mu.Lock()
	defer m.mu.Unlock()
	close(f.building[name])
	delete(f.building, name)
	if t == nil {
		return
	}
	f.traces[name] = append(slices.Clip(f.traces[name]), t)
	for row := range t.rows() {
		if f.readers[row] == nil {
			f.readers[row] = map[string]int{}
		}
		f.readers[row][name]++
	}
}

// Release gives up uses of traces, nil ones apart. A trace without users is
// forgotten.
func (m *Memo) Release(traces ...*Trace) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, t := range traces {
		if t == nil {
			continue
		}
		if t.users--; t.users == 0 {
			t.family.forget(t)
		}
	}
}

// forget takes a trace out. The caller holds the lock.
func (f *family) forget(t *Trace) {
	left := slices.DeleteFunc(slices.Clone(f.traces[t.name]), func(o *Trace) bool { return o == t })
	if len(left) == 0 {
		delete(f.traces, t.name)
	} else {
		f.traces[t.name] = left
	}
	for row := range t.rows() {
		names := f.readers[row]
		if names[t.name]--; names[t.name] == 0 {
			delete(names, t.name)
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
	f := m.families[familyKey{typeURL, shape}]
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

// Under returns the resource of a trace with a version that also covers that of
// its parent. All who ask for the same get the same.
func (m *Memo) Under(t *Trace, parentVersion string) *resource.Resource {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, c := range t.under {
		if c.parent == parentVersion {
			last := len(t.under) - 1
			t.under[i], t.under[last] = t.under[last], c
			return c.resource
		}
	}
	c := child{parentVersion, t.Resource.Under(parentVersion)}
	if len(t.under) == maxUnder {
		t.under = slices.Delete(t.under, 0, 1)
	}
	t.under = append(t.under, c)
	return c.resource
}

// Len is the number of resources in use.
func (m *Memo) Len() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := len(m.composed)
	for _, f := range m.families {
		for _, traces := range f.traces {
			n += len(traces)
		}
	}
	return n
}

// Reads are what the resource was built from. They are shared and read-only.
func (t *Trace) Reads() []mesh.Recorded { return t.reads }

// holds says whether the view gives all answers that the trace was built from.
func (t *Trace) holds(v *mesh.View) bool {
	for _, r := range t.reads {
		if v.Answer(r.Read) != r.Answer {
			return false
		}
	}
	return true
}

// rows iterates over the rows that the trace has read, once per question.
func (t *Trace) rows() iter.Seq[mesh.RowKey] {
	return func(yield func(mesh.RowKey) bool) {
		for _, r := range t.reads {
			if r.Read.Row.Table.Tracked() && !yield(r.Read.Row) {
				return
			}
		}
	}
}
