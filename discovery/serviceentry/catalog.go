package serviceentry

import (
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/labels"
	"github.com/portolan-mesh/portolan/storage/pmap"
)

// catalog indexes ServiceEntries and workloads by the keys of all lookups, so that the cost of
// an event follows what it touches. It is a value: its maps are never modified, so changes of
// a copy do not show in the original.
type catalog struct {
	entries pmap.Map[*entry]   // by nameKey
	hosts   pmap.Map[entrySet] // by host
	rows    pmap.Map[entrySet] // by hostKey
	bare    pmap.Map[entrySet] // by port: entries with bare ports, see entry.portOnlyPorts
	vips    addressIndex
	// A selector is filed under one of its labels, the empty selector under the zero label. A
	// workload is filed under each of its labels.
	selectors pmap.Map[entrySet]             // by label
	workloads pmap.Map[pmap.Map[*workload]]  // by namespace, and then by workloadKey
	labelled  pmap.Map[pmap.Map[bool]]       // by label: keys of workloads
	selected  pmap.Map[pmap.Map[*selection]] // by nameKey of the entry, then by workload.order
}

// entrySet is a set of ServiceEntries by entry.order, the order of config.Compare.
type entrySet = pmap.Map[*entry]

type label struct{ namespace, key, value string }

func (l label) path() string { return l.namespace + "\x00" + l.key + "\x00" + l.value }

func (k nameKey) path() string { return k.namespace + "/" + k.name }

func (k hostKey) path() string { return string(k.hostname) + "/" + k.namespace }

func portPath(port uint32) string { return strconv.FormatUint(uint64(port), 10) }

// ageOf returns a key that sorts like config.Compare.
func ageOf(object *config.Config) string {
	const beforeAll = 1 << 40 // seconds, so that no time is negative
	return fmt.Sprintf("%020d\x00%s\x00%s", object.CreationTimestamp.Unix()+beforeAll, object.Name, object.Namespace)
}

// addEntry adds a ServiceEntry and its selection of workloads. The catalog must not have an
// entry of that name.
func (c *catalog) addEntry(e *entry) {
	key := e.key()
	c.entries = c.entries.Set(key.path(), e)
	for hostname := range e.services {
		c.hosts = pmap.Put(c.hosts, string(hostname), e.order, e)
		c.rows = pmap.Put(c.rows, hostKey{hostname, key.namespace}.path(), e.order, e)
	}
	for _, port := range e.portOnlyPorts() {
		c.bare = pmap.Put(c.bare, portPath(port), e.order, e)
	}
	c.vips.add(e)
	if e.selector == nil {
		return
	}
	e.filed = c.rarestLabel(e)
	c.selectors = pmap.Put(c.selectors, e.filed.path(), e.order, e)
	selected := slices.SortedFunc(c.selectedBy(key.namespace, e.selector), func(a, b *workload) int { return strings.Compare(a.order, b.order) })
	if len(selected) > 0 {
		c.selected = c.selected.Set(key.path(), pmap.FromSorted(func(yield func(string, *selection) bool) {
			for _, w := range selected {
				if !yield(w.order, e.selection(w)) {
					return
				}
			}
		}))
	}
}

// removeEntry removes a ServiceEntry and returns it, nil if there is none.
func (c *catalog) removeEntry(key nameKey) *entry {
	e := c.entries.Value(key.path())
	if e == nil {
		return nil
	}
	c.entries = c.entries.Delete(key.path())
	for hostname := range e.services {
		c.hosts = pmap.Remove(c.hosts, string(hostname), e.order)
		c.rows = pmap.Remove(c.rows, hostKey{hostname, key.namespace}.path(), e.order)
	}
	for _, port := range e.portOnlyPorts() {
		c.bare = pmap.Remove(c.bare, portPath(port), e.order)
	}
	c.vips.remove(e)
	if e.selector != nil {
		c.selectors = pmap.Remove(c.selectors, e.filed.path(), e.order)
		c.selected = c.selected.Delete(key.path())
	}
	return e
}

// old is nil to add a workload, curr to remove one.
func (c *catalog) replace(namespace string, old, curr *workload) {
	of := func(w *workload) labels.Instance {
		if w == nil {
			return nil
		}
		return w.instance.Endpoint.Labels
	}
	before, after := of(old), of(curr)
	moves := old == nil || curr == nil || old.key != curr.key
	for k, v := range before {
		if now, has := after[k]; moves || !has || now != v {
			c.labelled = pmap.Remove(c.labelled, label{namespace, k, v}.path(), old.key.path())
		}
	}
	for k, v := range after {
		if was, had := before[k]; moves || !had || was != v {
			c.labelled = pmap.Put(c.labelled, label{namespace, k, v}.path(), curr.key.path(), true)
		}
	}
	if old != nil && moves {
		c.workloads = pmap.Remove(c.workloads, namespace, old.key.path())
	}
	if curr != nil {
		c.workloads = pmap.Put(c.workloads, namespace, curr.key.path(), curr)
	}
}

// updateSelection replaces old by curr in the selection of an entry, as far as the entry
// selects them; either may be nil.
func (c *catalog) updateSelection(e *entry, old, curr *workload) {
	key := e.key().path()
	all := c.selected.Value(key)
	if e.selects(old) && (!e.selects(curr) || curr.order != old.order) {
		all = all.Delete(old.order)
	}
	if e.selects(curr) {
		if s := all.Value(curr.order); s == nil || s.workload != curr {
			all = all.Set(curr.order, e.selection(curr))
		}
	}
	if all.Len() == 0 {
		c.selected = c.selected.Delete(key)
	} else {
		c.selected = c.selected.Set(key, all)
	}
}

// contains says whether the catalog has exactly this workload in the selection of an entry.
func (c *catalog) contains(e *entry, w *workload) bool {
	s := c.selected.Value(e.key().path()).Value(w.order)
	return s != nil && s.workload == w
}

// rarestLabel returns the label of a selector under which the fewest entries are filed.
func (c *catalog) rarestLabel(e *entry) label {
	best, least := label{namespace: e.object.Namespace}, -1
	for k, v := range e.selector {
		l := label{e.object.Namespace, k, v}
		if n := c.selectors.Value(l.path()).Len(); least < 0 || n < least || n == least && k < best.key {
			best, least = l, n
		}
	}
	return best
}

// selecting iterates over the ServiceEntries of a namespace that select a workload
// with the given labels, in no order.
func (c *catalog) selecting(namespace string, all labels.Instance) iter.Seq[*entry] {
	return func(yield func(*entry) bool) {
		for e := range c.selectors.Value(label{namespace: namespace}.path()).Values() {
			if !yield(e) {
				return
			}
		}
		for k, v := range all {
			for e := range c.selectors.Value(label{namespace, k, v}.path()).Values() {
				if e.selector.SubsetOf(all) && !yield(e) {
					return
				}
			}
		}
	}
}

// selectedBy iterates over the workloads of a namespace that a selector matches, in no order.
// It only looks at the workloads with the selector's rarest label.
func (c *catalog) selectedBy(namespace string, selector labels.Instance) iter.Seq[*workload] {
	return func(yield func(*workload) bool) {
		all := c.workloads.Value(namespace)
		if len(selector) == 0 {
			for w := range all.Values() {
				if !yield(w) {
					return
				}
			}
			return
		}
		var candidates pmap.Map[bool]
		first := true
		for k, v := range selector {
			if with := c.labelled.Value(label{namespace, k, v}.path()); first || with.Len() < candidates.Len() {
				candidates, first = with, false
			}
		}
		for key := range candidates.Keys() {
			if w := all.Value(key); selector.SubsetOf(w.instance.Endpoint.Labels) && !yield(w) {
				return
			}
		}
	}
}

// workload returns the workload of a WorkloadEntry, nil if there is none or it is
// unhealthy.
func (c *catalog) workload(key nameKey, cluster string) *workload {
	return c.workloads.Value(key.namespace).Value(workloadKey{discovery.External, cluster, key.name}.path())
}
