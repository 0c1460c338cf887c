package memo

import (
	"hash/maphash"
	"iter"
	"sync"

	"github.com/portolan-mesh/portolan/xds/generate"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// Composed is a resource that was put together from its frame and its parts. It is held
// by its users and never modified.
type Composed struct {
	Resource *resource.Resource

	id    composedID
	once  sync.Once
	err   error
	users int // guarded by Memo.mu
}

// composedID identifies the content of a composed resource.
type composedID struct {
	typeURL, name, own string
	parts              Sum
}

// Sum identifies the content of a set of resources, in whatever order they came and
// went; the zero Sum is the empty set. Sums are comparable within one process only.
type Sum struct {
	a, b uint64
	n    int
}

// The two hashes of a Sum are keyed, so that only who knows the keys can make two sets
// of one sum.
var seedA, seedB = maphash.MakeSeed(), maphash.MakeSeed()

type part struct{ name, version string }

// With returns the sum of the set and one more resource.
func (s Sum) With(r *resource.Resource) Sum {
	p := part{r.Name, r.Version}
	return Sum{s.a + maphash.Comparable(seedA, p), s.b + maphash.Comparable(seedB, p), s.n + 1}
}

// Without returns the sum of the set without one of its resources.
func (s Sum) Without(r *resource.Resource) Sum {
	p := part{r.Name, r.Version}
	return Sum{s.a - maphash.Comparable(seedA, p), s.b - maphash.Comparable(seedB, p), s.n - 1}
}

// Compose returns the resource of a type that the composer makes of own and the parts
// with that sum. It is made once for all with the same content. The caller holds it
// until ReleaseComposed.
func (m *Memo) Compose(typeURL string, by generate.Composer, own *resource.Resource, sum Sum, parts iter.Seq[*resource.Resource]) (*Composed, error) {
	c := m.useComposed(composedID{typeURL, own.Name, own.Version, sum})
	c.once.Do(func() { c.Resource, c.err = generate.Compose(by, own, parts) })
	if c.err != nil {
		m.ReleaseComposed(c)
		return nil, c.err
	}
	return c, nil
}

func (m *Memo) useComposed(id composedID) *Composed {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.composed[id]
	if c == nil {
		c = &Composed{id: id}
		m.composed[id] = c
	}
	c.users++
	return c
}

// ReleaseComposed ends one use. The last use removes the resource.
func (m *Memo) ReleaseComposed(c *Composed) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c.users--; c.users == 0 {
		delete(m.composed, c.id)
	}
}
