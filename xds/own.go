package xds

import (
	"log/slog"
	"slices"

	"github.com/portolan-mesh/portolan/xds/generate"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// own is the resources of one type of one proxy: those of its class, and inserted
// among them those that are its workload's own. These are few; each knows what it
// was built from.
type own struct {
	generator generate.Generator // nil for none
	names     []string
	named     []mesh.Recorded // what the names follow from
	built     map[string]inbound
	few       resource.Set // those of built that there are
	failed    bool         // one of them, the last time
	base, set resource.Set // that of the class, without and with these
}

// inbound is a resource of a workload, nil where there is none of its name, and
// what it was built from.
type inbound struct {
	resource *resource.Resource
	reads    []mesh.Recorded
	failed   bool
}

// advance brings the resources to those of a class, which stand at place i. Without
// a view nothing has changed for the workload's own.
func (o *own) advance(view *mesh.View, at *sets, i int, logger *slog.Logger) {
	base := at.byType[i]
	if o.generator == nil {
		o.set = base
		return
	}
	changed := view != nil && o.follow(view, at.context, logger)
	if changed {
		o.few = resource.FromSorted(o.there)
	}
	if changed || o.base != base {
		o.base, o.set = base, base.Beside(o.few)
	}
}

// there iterates, in order, over those that there are.
func (o *own) there(yield func(string, *resource.Resource) bool) {
	for _, name := range o.names {
		if r := o.built[name].resource; r != nil && !yield(name, r) {
			return
		}
	}
}

// follow builds again what would not be built from the same, and says whether
// anything is another.
func (o *own) follow(view *mesh.View, context *mesh.PushContext, logger *slog.Logger) (changed bool) {
	if o.named == nil || !holds(view, o.named) {
		recording := view.Recording()
		names := slices.Sorted(o.generator.Affected(recording, mesh.Diff(nil, context)))
		o.names, o.named = slices.Compact(names), recording.Reads()
		changed = o.drop()
	}
	o.failed = false
	for _, name := range o.names {
		last, known := o.built[name]
		if known && !last.failed && holds(view, last.reads) {
			continue
		}
		recording := view.Recording()
		built, err := o.generator.Build(recording, name)
		if err != nil {
			o.failed = true
			logger.Error("resource not built, the last one is kept", "type", o.generator.TypeURL(), "name", name, "err", err)
			built = last.resource
		}
		if same(built, last.resource) {
			built = last.resource
		} else {
			changed = true
		}
		o.built[name] = inbound{built, recording.Reads(), err != nil}
	}
	return changed
}

// drop gives up what has no name any more.
func (o *own) drop() (changed bool) {
	if o.built == nil {
		o.built = map[string]inbound{}
	}
	for name, b := range o.built {
		if _, still := slices.BinarySearch(o.names, name); !still {
			changed = changed || b.resource != nil
			delete(o.built, name)
		}
	}
	return changed
}

func same(a, b *resource.Resource) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Version == b.Version
}

func holds(view *mesh.View, reads []mesh.Recorded) bool {
	for _, r := range reads {
		if view.Answer(r.Read) != r.Answer {
			return false
		}
	}
	return true
}
