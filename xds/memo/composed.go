package memo

import (
	"hash/maphash"
	"iter"
	"sync"

	"github.com/portolan-mesh/portolan/xds/generate"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// Composed is a resource that was put together from its own and its parts. It is
// held by its users and never modified.
type Composed struct {
	Resource *resource.Resource

	id    composedID
	once  sync.Once
	err   error
	users int // guarded by Memo.mu
}

// composedID is the content that a composed resource is made of.
type composedID struct {
	typeURL, name, own string
	parts              Sum
}

// Sum tells the content of a set of resources from that of others, whatever the
// order in which they came and went; the zero Sum is that of none. Sums are
// comparable within one process only.
type Sum struct {
	a, b uint64
	n    int
}

// The two hashes of a Sum are keyed, so that nobody who does not know the keys
// can make two sets of one sum.
var seedA, seedB = maphash.MakeSeed(), maphash.MakeSeed()

type part struct{ name, version string }

// With is the sum of the set and one more.
func (s Sum) With(r *resource.Resource) Sum {
	p := part{r.Name, r.Version}
	return Sum{s.a + maphash.Comparable(seedA, p), s.b + maphash.Comparable(seedB, p), s.n + 1}
}

// Without is the sum of the set without one that is in it.
func (s Sum) Without(r *resource.Resource) Sum {
	p := part{r.Name, r.Version}
	return Sum{s.a - maphash.Comparable(seedA, p), s.b - maphash.Comparable(seedB, p), s.n - 1}
}

// Compose returns what g makes of a resource's own and its parts, whose sum is
// given: it is made once for all who have the same. The caller holds it until
// ReleaseComposed.
func (m *Memo) Compose(g generate.Composer, own *resource.Resource, sum Sum, parts iter.Seq[*resource.Resource]) (*Composed, error) {
	c := m.useComposed(composedID{g.TypeURL(), own.Name, own.Version, sum})
	c.once.Do(func() { c.Resource, c.err = g.Compose(own, parts) })
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

// ReleaseComposed gives up a use. What has no users is forgotten.
func (m *Memo) ReleaseComposed(c *Composed) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c.users--; c.users == 0 {
		delete(m.composed, c.id)
	}
}
