package mesh

import (
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/portolan-mesh/portolan/discovery"
)

// largeRow is how many endpoints a row has whose localities are kept apart: what
// is made of fewer is made as fast from nothing.
const largeRow = 64

// Locality is the endpoints of a row that are of one locality, in their order.
// Rows that follow one another share those that are the same, with what was derived
// from them.
type Locality struct {
	Label     string
	Endpoints []*discovery.Endpoint

	mu      sync.Mutex // guards derived
	derived map[any]any
}

// maxDerived bounds what is kept of keys that are asked for no more.
const maxDerived = 64

// Derived is what make returns, which is called once for a key, as long as there
// are not too many of them: it has to follow from the key and the locality alone.
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

// Localities are those of a large row, in the order of their labels; none of a
// small one, or of one that Follow was not called of.
func (r *EndpointRow) Localities() []*Locality { return r.localities }

// Follow tells a row, while it is made, of the one before it, nil for none: where
// it is large, it shares the localities that are the same.
func (r *EndpointRow) Follow(prev *EndpointRow) {
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
func (r *EndpointRow) locality(label string) *Locality {
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
