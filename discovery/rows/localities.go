package rows

import (
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/portolan-mesh/portolan/discovery"
)

// largeRow is the number of endpoints from which on the localities of a row are kept
// apart. Smaller rows are built as fast from nothing.
const largeRow = 64

// Locality holds the endpoints of a row in one locality, in their order. Successive
// rows share the localities that are the same, with what was derived from them.
type Locality struct {
	Label     string
	Endpoints []*discovery.Endpoint

	mu      sync.Mutex // guards derived
	derived map[any]any
}

// maxDerived bounds the derived values that are kept, used or not.
const maxDerived = 64

// Derived returns what make returns. It calls make once for a key, as long as there are
// not too many keys. The result must follow from the key and the locality alone.
func (l *Locality) Derived(key any, make func() any) any {
	l.mu.Lock()
	defer l.mu.Unlock()
	value, known := l.derived[key]
	if !known {
		if l.derived == nil || len(l.derived) == maxDerived {
			l.derived = map[any]any{}
		}
		value = make()
		l.derived[key] = value
	}
	return value
}

// Localities returns the localities of a large row, in the order of their labels. A
// small row has none, nor has a row without Follow.
func (r *Endpoints) Localities() []*Locality { return r.localities }

// Follow tells a row, while it is made, of the one before it, nil for none. A large row
// shares the localities that are the same.
func (r *Endpoints) Follow(prev *Endpoints) {
	if len(r.Endpoints) < largeRow {
		return
	}
	byLabel := map[string][]*discovery.Endpoint{}
	for _, e := range r.Endpoints {
		byLabel[e.Locality.Label] = append(byLabel[e.Locality.Label], e)
	}
	for _, label := range slices.Sorted(maps.Keys(byLabel)) {
		l := prev.locality(label)
		if l == nil || !slices.EqualFunc(l.Endpoints, byLabel[label], (*discovery.Endpoint).Equal) {
			l = &Locality{Label: label, Endpoints: byLabel[label]}
		}
		r.localities = append(r.localities, l)
	}
}

// locality finds one by its label, nil where there is none.
func (r *Endpoints) locality(label string) *Locality {
	if r == nil {
		return nil
	}
	i, found := slices.BinarySearchFunc(r.localities, label, func(l *Locality, label string) int {
		return strings.Compare(l.Label, label)
	})
	if !found {
		return nil
	}
	return r.localities[i]
}
