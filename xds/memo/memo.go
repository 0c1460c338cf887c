// Package memo keeps built resources by what they were built from, and finds
// the resources that a changed row concerns.
//
// A Trace is one built resource with everything that was read to build it and
// the answers. Whoever would get the same answers, another class of proxies or
// the same at a later time, shares the resource instead of building it. The memo
// is indexed both ways: a Trace knows its reads, a row knows its readers.
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
	mu      sync.Mutex
	traces  map[id][]*Trace // those in use, the newest last
	readers map[mesh.RowKey]map[id]int
}

// id names a resource among proxies of one shape.
type id struct {
	typeURL string
	shape   mesh.Shape
	name    string
}

// Trace is a resource, nil where there is none of its name, and what it was
// built from. It is held by its users and never modified.
type Trace struct {
	Resource *resource.Resource

	id    id
	reads map[mesh.Read]any
	users int // guarded by Memo.mu
}

// New returns an empty memo.
func New() *Memo {
	return &Memo{traces: map[id][]*Trace{}, readers: map[mesh.RowKey]map[id]int{}}
}

// Build returns the trace of a resource in a view: one that is there already and
// holds in this view, else a new one. The caller holds it until Release.
func (m *Memo) Build(v *mesh.View, g generate.Generator, name string) (*Trace, error) {
	key := id{g.TypeURL(), v.Shape(), name}
	if t := m.find(v, key); t != nil {
		return t, nil
	}
	recording := v.Recording()
	built, err := g.Build(recording, name)
	if err != nil {
		return nil, err
	}
	t := &Trace{Resource: built, id: key, reads: recording.Reads(), users: 1}
	m.add(t)
	return t, nil
}

// find takes a use of a trace that holds in the view.
func (m *Memo) find(v *mesh.View, key id) *Trace {
	m.mu.Lock()
	candidates := slices.Clone(m.traces[key])
	m.mu.Unlock()
	for _, t := range slices.Backward(candidates) {
		if t.holds(v) && m.use(t) {
			return t
		}
	}
	return nil
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

func (m *Memo) add(t *Trace) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.traces[t.id] = append(m.traces[t.id], t)
	for row := range t.rows() {
		if m.readers[row] == nil {
			m.readers[row] = map[id]int{}
		}
		m.readers[row][t.id]++
	}
}

// Release gives up a use. A trace without users is forgotten.
func (m *Memo) Release(t *Trace) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if t.users--; t.users > 0 {
		return
	}
	m.traces[t.id] = slices.DeleteFunc(m.traces[t.id], func(o *Trace) bool { return o == t })
	if len(m.traces[t.id]) == 0 {
		delete(m.traces, t.id)
	}
	for row := range t.rows() {
		ids := m.readers[row]
		if ids[t.id]--; ids[t.id] == 0 {
			delete(ids, t.id)
		}
		if len(ids) == 0 {
			delete(m.readers, row)
		}
	}
}

// Readers returns, in order, the names of the resources of a type, among
// proxies of one shape, that were built from any of the rows.
func (m *Memo) Readers(typeURL string, shape mesh.Shape, rows []mesh.RowKey) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	names := map[string]struct{}{}
	for _, row := range rows {
		for reader := range m.readers[row] {
			if reader.typeURL == typeURL && reader.shape == shape {
				names[reader.name] = struct{}{}
			}
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// Len is the number of traces in use.
func (m *Memo) Len() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := 0
	for _, traces := range m.traces {
		n += len(traces)
	}
	return n
}

// holds says whether the view gives all answers that the trace was built from.
func (t *Trace) holds(v *mesh.View) bool {
	for read, answer := range t.reads {
		if v.Answer(read) != answer {
			return false
		}
	}
	return true
}

// rows iterates over the rows that the trace has read, once per question.
func (t *Trace) rows() iter.Seq[mesh.RowKey] {
	return func(yield func(mesh.RowKey) bool) {
		for read := range t.reads {
			if read.Row.Table != mesh.Self && !yield(read.Row) {
				return
			}
		}
	}
}
