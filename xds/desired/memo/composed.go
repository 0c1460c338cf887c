package memo

import (
	"hash/maphash"
	"iter"

	"github.com/portolan-mesh/portolan/xds/generate"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// composedID identifies the content of a composed resource.
type composedID struct {
	typeURL, name, version string
	parts                  Sum
}

// Sum identifies the content of a set of resources, in whatever order they came and
// went; the zero Sum is the empty set. Sums are comparable within one process only.
type Sum struct {
	a, b uint64
	n    int
}

// The two hashes of a Sum are keyed, so that nobody without the keys can make two sets
// with one sum.
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
// with that sum. It is made once for all with the same content. The caller is a user of
// it until Release.
func (m *Memo) Compose(typeURL string, by generate.Composer, own *resource.Resource, sum Sum, parts iter.Seq[*resource.Resource]) (*Built, error) {
	defer m.lock(own.Name).Unlock()
	id := composedID{typeURL, own.Name, own.Version, sum}
	m.mu.Lock()
	c := m.composed[id]
	m.mu.Unlock()
	if c != nil && m.use(c) {
		return c, nil
	}
	r, err := generate.Compose(by, own, parts)
	if err != nil {
		return nil, err
	}
	c = &Built{Resource: r, composed: &id, users: 1}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.composed[id] = c
	return c, nil
}
