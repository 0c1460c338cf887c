package serviceentry

import (
	"cmp"
	"iter"
	"slices"
	"sync"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/host"
	"github.com/portolan-mesh/portolan/storage/labels"
)

// catalog has the ServiceEntries and the workloads by all that they are looked
// up by, so that an event costs what it touches. The worker alone changes it,
// and reads it without the lock; others read it under the lock.
type catalog struct {
	mu      sync.RWMutex // guards the fields below
	entries map[nameKey]*entry
	hosts   map[host.Name][]*entry // these three in the order of config.Compare
	rows    map[hostKey][]*entry
	bare    map[uint32][]*entry // by port, those that have nothing but it, see entry.bare
	places  map[string]*place   // by namespace
	vips    addressIndex
}

func newCatalog() *catalog {
	return &catalog{
		entries: map[nameKey]*entry{}, hosts: map[host.Name][]*entry{}, rows: map[hostKey][]*entry{},
		bare: map[uint32][]*entry{}, places: map[string]*place{},
	}
}

// place is one namespace: the ServiceEntries that select, and what they select
// from. A selector is found by one of its labels, the empty one by the zero
// label; a workload by each of its labels.
type place struct {
	selectors map[label]map[*entry]struct{}
	workloads map[workloadKey]*workload
	labelled  map[label]map[*workload]struct{}
}

type label struct{ key, value string }

func (c *catalog) place(namespace string) *place {
	if p := c.places[namespace]; p != nil {
		return p
	}
	return &place{}
}

// change has f change a namespace, which goes with the last that it holds.
func (c *catalog) change(namespace string, f func(*place)) {
	p := c.places[namespace]
	if p == nil {
		p = &place{
			selectors: map[label]map[*entry]struct{}{}, workloads: map[workloadKey]*workload{},
			labelled: map[label]map[*workload]struct{}{},
		}
		c.places[namespace] = p
	}
	if f(p); len(p.selectors)+len(p.workloads) == 0 {
		delete(c.places, namespace)
	}
}

// addEntry adds a ServiceEntry whose name is not taken.
func (c *catalog) addEntry(e *entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := e.key()
	c.entries[key] = e
	for hostname := range e.services {
		list(c.hosts, hostname, e)
		list(c.rows, hostKey{hostname, key.namespace}, e)
	}
	for _, port := range e.bare() {
		list(c.bare, port, e)
	}
	c.vips.add(e)
	if e.selector != nil {
		c.change(key.namespace, func(p *place) { e.filed = p.file(e) })
	}
}

// removeEntry takes a ServiceEntry out and returns it, nil where there is none.
func (c *catalog) removeEntry(key nameKey) *entry {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.entries[key]
	if e == nil {
		return nil
	}
	delete(c.entries, key)
	for hostname := range e.services {
		unlist(c.hosts, hostname, e)
		unlist(c.rows, hostKey{hostname, key.namespace}, e)
	}
	for _, port := range e.bare() {
		unlist(c.bare, port, e)
	}
	c.vips.remove(e)
	if e.selector != nil {
		c.change(key.namespace, func(p *place) { remove(p.selectors, e.filed, e) })
	}
	return e
}

// replace puts one workload of a namespace in the place of another; either may
// be nil.
func (c *catalog) replace(namespace string, old, curr *workload) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.change(namespace, func(p *place) {
		if old != nil {
			delete(p.workloads, old.key)
			for k, v := range old.instance.Endpoint.Labels {
				remove(p.labelled, label{k, v}, old)
			}
		}
		if curr != nil {
			p.workloads[curr.key] = curr
			for k, v := range curr.instance.Endpoint.Labels {
				put(p.labelled, label{k, v}, curr, struct{}{})
			}
		}
	})
}

// file puts a selector under that of its labels which the fewest others are
// filed under.
func (p *place) file(e *entry) label {
	var best label
	first := true
	for k, v := range e.selector {
		l := label{k, v}
		if n := cmp.Compare(len(p.selectors[l]), len(p.selectors[best])); first || n < 0 || n == 0 && l.key < best.key {
			best, first = l, false
		}
	}
	put(p.selectors, best, e, struct{}{})
	return best
}

// selecting iterates over the ServiceEntries that select a workload with the
// given labels, in no order.
func (p *place) selecting(all labels.Instance) iter.Seq[*entry] {
	return func(yield func(*entry) bool) {
		for e := range p.selectors[label{}] {
			if !yield(e) {
				return
			}
		}
		for k, v := range all {
			for e := range p.selectors[label{k, v}] {
				if e.selector.SubsetOf(all) && !yield(e) {
					return
				}
			}
		}
	}
}

// selected iterates over the workloads that a selector selects, in no order. It
// looks at those that have the rarest of its labels.
func (p *place) selected(selector labels.Instance) iter.Seq[*workload] {
	return func(yield func(*workload) bool) {
		if len(selector) == 0 {
			for _, w := range p.workloads {
				if !yield(w) {
					return
				}
			}
			return
		}
		var candidates map[*workload]struct{}
		first := true
		for k, v := range selector {
			if with := p.labelled[label{k, v}]; first || len(with) < len(candidates) {
				candidates, first = with, false
			}
		}
		for w := range candidates {
			if selector.SubsetOf(w.instance.Endpoint.Labels) && !yield(w) {
				return
			}
		}
	}
}

// workload is that of a WorkloadEntry, nil where there is none or it is not
// healthy.
func (c *catalog) workload(key nameKey, cluster string) *workload {
	return c.place(key.namespace).workloads[workloadKey{discovery.External, cluster, key.name}]
}

func compareEntries(a, b *entry) int { return config.Compare(a.object, b.object) }

// list puts an entry where it belongs in a group.
func list[G comparable](m map[G][]*entry, group G, e *entry) {
	i, _ := slices.BinarySearchFunc(m[group], e, compareEntries)
	m[group] = slices.Insert(m[group], i, e)
}

func unlist[G comparable](m map[G][]*entry, group G, e *entry) {
	m[group] = slices.DeleteFunc(m[group], func(o *entry) bool { return o == e })
	if len(m[group]) == 0 {
		delete(m, group)
	}
}

func put[G, K comparable, V any](m map[G]map[K]V, group G, k K, v V) {
	if m[group] == nil {
		m[group] = map[K]V{}
	}
	m[group][k] = v
}

func remove[G, K comparable, V any](m map[G]map[K]V, group G, k K) {
	if delete(m[group], k); len(m[group]) == 0 {
		delete(m, group)
	}
}
