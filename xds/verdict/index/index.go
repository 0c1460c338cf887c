// Package index has the verdicts of all objects for given facts, and keeps the newest.
package index

import (
	"iter"
	"maps"
	"slices"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/cores"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/xds/verdict"
)

// List has the verdicts of one object, the worst first. It is never modified and never empty.
type List struct {
	// Of is the object.
	Of       *config.Config
	Verdicts []verdict.Verdict
}

// Index has the verdicts of all objects for given facts. It is never modified; the next one
// shares with it all that did not change. The nil Index is that of the empty mesh.
type Index struct {
	world   verdict.Lookup
	reads   pmap.Map[*reads]         // by the path of the object that was judged
	readers pmap.Map[pmap.Map[bool]] // paths, by row
	found   pmap.Map[*List]          // by path
	counts  pmap.Map[int]            // the number of verdicts by code
	served  pmap.Map[*addresses]     // by path
	unbuilt unbuilt

	registrations registrations
	patches       patches
}

// addresses are those at which gateways serve an Ingress, in order.
type addresses struct{ all []string }

// reads are the rows that a judgement read.
type reads struct{ rows []verdict.Row }

// Next derives the index of other facts, later or hypothetical ones. The result equals an index
// derived from nothing. The cost follows the difference between the facts.
func (x *Index) Next(to verdict.Facts) *Index {
	return x.next(to, schemaWarnings, (*Index).replace)
}

// foresee is Next for facts of which only the verdicts in view of other objects count: objects
// that differ get none of their schemas. No index can be derived from the result.
func (x *Index) foresee(to verdict.Facts) *Index {
	return x.next(to, func(*config.Config) []verdict.Verdict { return nil }, (*Index).find)
}

// next derives the index of other facts. warnings returns the verdicts of an object's schema, and
// keep keeps the outcome of a judgement.
func (x *Index) next(to verdict.Facts, warnings func(*config.Config) []verdict.Verdict, keep func(x *Index, path string, by outcome)) *Index {
	next := &Index{}
	if x != nil && x.world.Mesh != nil && x.world.Mesh.MeshConfig() == to.Mesh.MeshConfig() {
		*next = *x
	}
	from, before, registered, patched := next.world.Facts, next.unbuilt, next.registrations, next.patches
	due := map[string]struct{}{}
	for c := range pmap.Diff(from.Configs(), to.Configs()) {
		due[c.Key] = struct{}{}
	}
	for c := range pmap.Diff(from.Shadows(), to.Shadows()) {
		due[c.Key] = struct{}{}
	}
	if from.Mesh != nil {
		for r := range verdict.ChangedRows(from, to) {
			for path := range next.readers.Value(string(r)).Keys() {
				due[path] = struct{}{}
			}
		}
	}
	for key := range advisedAnew(from, to) {
		due[key.Path()] = struct{}{}
	}
	next.unbuilt = followUnbuilt(next.unbuilt, from, to)
	for path := range reportedAnew(before, next.unbuilt) {
		due[path] = struct{}{}
	}
	next.registrations = followRegistrations(next.registrations, from, to)
	for path := range reportedAnew(registered, next.registrations) {
		due[path] = struct{}{}
	}
	next.patches = followPatches(next.patches, from, to)
	for path := range reportedAnew(patched, next.patches) {
		due[path] = struct{}{}
	}
	next.world = next.world.Next(to)
	judged, paths := from.Configs(), slices.Sorted(maps.Keys(due))
	outcomes := make([]outcome, len(paths))
	cores.Each(len(paths), func(i int) { outcomes[i] = next.judge(paths[i], judged.Value(paths[i]), warnings) })
	for i, path := range paths {
		keep(next, path, outcomes[i])
	}
	return next
}

// outcome is the outcome of a judgement; object is nil if there is none any more.
type outcome struct {
	object   *config.Config
	rows     []verdict.Row
	verdicts []verdict.Verdict
	served   []string
}

// judge judges one object again. was is the object at its last judgement, nil if it has not
// been judged. warnings returns the verdicts of an object's schema.
func (x *Index) judge(path string, was *config.Config, warnings func(*config.Config) []verdict.Verdict) outcome {
	object := x.world.Configs().Value(path)
	var alone []verdict.Verdict
	switch {
	case object == nil:
	case object == was:
		alone = slices.DeleteFunc(slices.Clone(x.found.Value(path).all()), func(v verdict.Verdict) bool { return !v.Alone })
	default:
		alone = warnings(object)
	}
	return x.judgeObject(object, alone)
}

// replace replaces what the index has of one object.
func (x *Index) replace(path string, by outcome) {
	x.record(path, by.rows)
	switch old := x.served.Value(path); {
	case len(by.served) == 0:
		x.served = x.served.Delete(path)
	case old == nil || !slices.Equal(old.all, by.served):
		x.served = x.served.Set(path, &addresses{by.served})
	}
	for _, v := range x.found.Value(path).all() {
		x.count(v.Code, -1)
	}
	for _, v := range by.verdicts {
		x.count(v.Code, 1)
	}
	x.find(path, by)
}

// find replaces the verdicts of one object, and nothing else.
func (x *Index) find(path string, by outcome) {
	old := x.found.Value(path)
	switch {
	case len(by.verdicts) == 0:
		x.found = x.found.Delete(path)
	case old == nil || old.Of != by.object || !slices.Equal(old.Verdicts, by.verdicts):
		x.found = x.found.Set(path, &List{by.object, by.verdicts})
	}
}

func (x *Index) count(code verdict.Code, by int) {
	if n := x.counts.Value(string(code)) + by; n > 0 {
		x.counts = x.counts.Set(string(code), n)
	} else {
		x.counts = x.counts.Delete(string(code))
	}
}

// record replaces the rows that the judgement of an object read. They must be in order.
func (x *Index) record(path string, rows []verdict.Row) {
	old := x.reads.Value(path)
	if old != nil && slices.Equal(old.rows, rows) {
		return
	}
	if old != nil {
		for _, r := range old.rows {
			x.readers = pmap.Remove(x.readers, string(r), path)
		}
	}
	if len(rows) == 0 {
		x.reads = x.reads.Delete(path)
		return
	}
	for _, r := range rows {
		x.readers = pmap.Put(x.readers, string(r), path, true)
	}
	x.reads = x.reads.Set(path, &reads{rows})
}

// Of returns the verdicts of an object, nil if it has none.
func (x *Index) Of(key config.Key) []verdict.Verdict {
	if x == nil {
		return nil
	}
	return x.found.Value(key.Path()).all()
}

// Addresses returns the addresses and host names at which gateways serve an Ingress, in order.
func (x *Index) Addresses(key config.Key) []string {
	if x == nil {
		return nil
	}
	if a := x.served.Value(key.Path()); a != nil {
		return a.all
	}
	return nil
}

// Moved iterates over the paths of the Ingresses whose Addresses differ between two indexes.
func Moved(from, to *Index) iter.Seq[string] {
	return func(yield func(string) bool) {
		for c := range pmap.Diff(from.addresses(), to.addresses()) {
			if !yield(c.Key) {
				return
			}
		}
	}
}

func (x *Index) addresses() pmap.Map[*addresses] {
	if x == nil {
		return pmap.Map[*addresses]{}
	}
	return x.served
}

// Lists iterates over the objects that have verdicts, by path.
func (x *Index) Lists() iter.Seq[*List] {
	if x == nil {
		return func(func(*List) bool) {}
	}
	return x.found.Values()
}

// Changed iterates over the objects whose verdicts differ between two indexes, by path. An
// object with verdicts that was itself replaced is included.
func Changed(from, to *Index) iter.Seq[pmap.Change[*List]] {
	return pmap.Diff(from.lists(), to.lists())
}

func (x *Index) lists() pmap.Map[*List] {
	if x == nil {
		return pmap.Map[*List]{}
	}
	return x.found
}

// Count returns the number of verdicts of a code.
func (x *Index) Count(code verdict.Code) int {
	if x == nil {
		return 0
	}
	return x.counts.Value(string(code))
}

func (l *List) all() []verdict.Verdict {
	if l == nil {
		return nil
	}
	return l.Verdicts
}
