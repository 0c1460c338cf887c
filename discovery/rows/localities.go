package rows

import (
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/portolan-mesh/portolan/discovery"
)

// largeRow is the number of endpoints from which on a row keeps its localities. Building a
// smaller row anew is as fast.
const largeRow = 64

// Locality holds the endpoints of a row in one locality, in their order. Successive rows share
// unchanged localities, with the values derived from them.
type Locality struct {
	Label     string
	Endpoints []*discovery.Endpoint

	mu      sync.Mutex // guards derived
	derived map[any]any
}

// maxDerived bounds the derived values of a locality; when it is reached, all are dropped.
const maxDerived = 64

// Derived returns the value of make for a key. It calls make only once for each key, unless
// there are more than maxDerived keys. The value must depend on the key and the locality
// alone.
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

// Localities returns the localities of a large row, in the order of their labels. Small rows,
// and rows without Follow, have none.
func (r *Endpoints) Localities() []*Locality { return r.localities }

// Follow sets the localities of a large row while it is built. It shares those that are the
// same in prev, the row before; nil means that there was none.
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

// locality returns the locality with a label, nil if there is none.
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
