package mcp

import (
	"maps"
	"slices"
	"time"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/storage/schema"
)

type typeState struct {
	kind *schema.Schema
	// held are the resources from the peer, by name.
	held map[string]*held
	// faults are the faults of resources, by name. nameless has the faults without a
	// name.
	faults   map[string]*cache.Problem
	nameless []*cache.Problem
}

func newTypeState(kind *schema.Schema) *typeState {
	return &typeState{kind: kind, held: map[string]*held{}, faults: map[string]*cache.Problem{}}
}

// held is a resource from the peer. It is never modified.
type held struct {
	version string
	// object is the served object, possibly of an earlier version; nil for none.
	object *config.Config
}

// answer is a response for one kind.
type answer struct {
	of *typeState
	// whole says that the response has all resources of the kind.
	whole     bool
	resources []*received
	removed   []string
}

// undecodable returns the resources that cause a NACK.
func (a *answer) undecodable() (out []*received) {
	for _, r := range a.resources {
		if r.undecodable {
			out = append(out, r)
		}
	}
	return out
}

// markDuplicates marks the first resource of each name that occurs again.
func (a *answer) markDuplicates() {
	first := make(map[string]*received, len(a.resources))
	for _, r := range a.resources {
		if f := first[r.name]; f != nil {
			f.twice = true
		} else {
			first[r.name] = r
		}
	}
}

func (t *typeState) apply(configs pmap.Map[*config.Config], a *answer, at time.Time, changes *problemChanges) pmap.Map[*config.Config] {
	gone, named := map[string]bool{}, map[string]bool{}
	a.markDuplicates()
	for _, name := range a.removed {
		gone[name] = true
	}
	if a.whole {
		for name := range t.held {
			gone[name] = true
		}
		for name := range t.faults {
			gone[name] = true
		}
	}
	nameless := t.nameless
	t.nameless = nil
	for _, r := range a.resources {
		delete(gone, r.name)
		switch {
		case r.name == "":
			t.nameless = append(t.nameless, &cache.Problem{Object: "a resource of the kind " + t.kind.Kind, Message: r.fault, Since: at})
		case !named[r.name]:
			named[r.name] = true
			configs = t.put(configs, r, at, changes)
		}
	}
	if a.whole && len(t.nameless) > 0 {
		clear(gone) // each may be one of the nameless
	}
	for _, name := range slices.Sorted(maps.Keys(gone)) {
		if h := t.held[name]; h != nil && h.object != nil {
			configs = configs.Delete(h.object.Meta.Key().Path())
		}
		delete(t.held, name)
		t.clearFault(name, changes)
	}
	t.compareNameless(nameless, changes)
	return configs
}

func (t *typeState) put(configs pmap.Map[*config.Config], r *received, at time.Time, changes *problemChanges) pmap.Map[*config.Config] {
	before := t.held[r.name]
	switch {
	case r.object == nil:
		t.setFault(r, &cache.Problem{Message: r.fault, Serving: before != nil && before.object != nil}, at, changes)
		if r.undecodable { // the NACK says that it was not accepted
			return configs
		}
		h := &held{version: r.version}
		if before != nil {
			h.object = before.object
		}
		t.held[r.name] = h
		return configs
	case r.twice:
		t.setFault(r, &cache.Problem{Message: "is there twice in one answer: the first counts", Serving: true}, at, changes)
	case r.warning != "":
		t.setFault(r, &cache.Problem{Message: r.warning, Serving: true, Warning: true}, at, changes)
	default:
		t.clearFault(r.name, changes)
	}
	h := &held{r.version, r.object}
	if before != nil && before.object != nil && before.object.ResourceVersion == r.object.ResourceVersion {
		h.object = before.object
	}
	t.held[r.name] = h
	if path := r.object.Meta.Key().Path(); configs.Value(path) != h.object {
		configs = configs.Set(path, h.object)
	}
	return configs
}

func (t *typeState) setFault(r *received, p *cache.Problem, at time.Time, changes *problemChanges) {
	p.Object, p.Since = r.key(t.kind).String(), at
	if old := t.faults[r.name]; old != nil {
		p.Since = old.Since
		if old.Message == p.Message {
			t.faults[r.name] = p
			return
		}
	}
	t.faults[r.name] = p
	changes.added = append(changes.added, *p)
}

// clearFault records that a resource has no fault.
func (t *typeState) clearFault(name string, changes *problemChanges) {
	if old := t.faults[name]; old != nil {
		changes.solved = append(changes.solved, *old)
		delete(t.faults, name)
	}
}

// compareNameless adds to said how the faults without a name differ from those before.
func (t *typeState) compareNameless(before []*cache.Problem, changes *problemChanges) {
	has := func(all []*cache.Problem, p *cache.Problem) *cache.Problem {
		if i := slices.IndexFunc(all, func(o *cache.Problem) bool { return o.Message == p.Message }); i >= 0 {
			return all[i]
		}
		return nil
	}
	for _, p := range t.nameless {
		if old := has(before, p); old != nil {
			p.Since = old.Since
		} else {
			changes.added = append(changes.added, *p)
		}
	}
	for _, p := range before {
		if has(t.nameless, p) == nil {
			changes.solved = append(changes.solved, *p)
		}
	}
}

// versions returns the versions of the held resources, by name. It leaves one version
// empty, so that a peer answers for the kind even if nothing has changed: a peer that
// answers has read its store.
func (t *typeState) versions() map[string]string {
	out := make(map[string]string, len(t.held))
	first := ""
	for name, h := range t.held {
		out[name] = h.version
		if first == "" || name < first {
			first = name
		}
	}
	if first != "" {
		out[first] = ""
	}
	return out
}

// size estimates how many bytes the versions take in a request.
func (t *typeState) size() int {
	n := 0
	for name, h := range t.held {
		n += len(name) + len(h.version) + 8
	}
	return n
}
