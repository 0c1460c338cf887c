package order

import (
	"time"

	"github.com/portolan-mesh/portolan/xds/resource"
	"github.com/portolan-mesh/portolan/xds/stream"
)

// arrivals are the resources new to the client that it does not have wholly yet.
// Their children have their names. Normally there are none.
type arrivals struct {
	stages map[string]stage
	// moments are those that the client is given to resolve host names, in their
	// order.
	moments []moment
}

// stage is how far a client has come with a resource.
type stage uint8

const (
	answered  stage = 1 << iota // the response that carried it
	warmed                      // the child that it waits for is there
	resolving                   // it is there at the end of a moment
)

type moment struct {
	until time.Time
	names map[string]struct{}
}

// sent takes note of a response under way.
func (a *arrivals) sent(r *stream.Response) {
	if len(r.New) == 0 {
		return
	}
	if a.stages == nil {
		a.stages = make(map[string]stage, len(r.New))
	}
	for _, n := range r.New {
		a.stages[n.Name] = 0
		for _, m := range a.moments { // it was there before, and gone
			delete(m.names, n.Name)
		}
	}
}

// answered takes note of how the client took resources, and whether it asks for
// children at all. One that refused a response may have taken some of it; it
// shows by asking for their children.
func (a *arrivals) answered(resources []*resource.Resource, taken, asks bool, resolvedAt time.Time) {
	m := moment{until: resolvedAt, names: map[string]struct{}{}}
	for _, r := range resources {
		s, arriving := a.stages[r.Name]
		switch {
		case !arriving:
		case asks && len(r.Children) > 0 && s&warmed == 0:
			a.stages[r.Name] = s | answered
		case len(r.Children) == 0 && !taken:
		case r.Resolves:
			a.stages[r.Name] = s | answered | resolving
			m.names[r.Name] = struct{}{}
		default:
			a.arrive(r.Name)
		}
	}
	if len(m.names) > 0 {
		a.moments = append(a.moments, m)
	}
}

// awaitedIn are the names of a response of children whose parents wait for them.
func (a *arrivals) awaitedIn(r *stream.Response) map[string]struct{} {
	if len(a.stages) == 0 {
		return nil
	}
	out := map[string]struct{}{}
	for _, child := range r.Resources {
		if _, arriving := a.stages[child.Name]; arriving {
			out[child.Name] = struct{}{}
		}
	}
	for _, name := range r.Removed {
		if _, arriving := a.stages[name]; arriving {
			out[name] = struct{}{}
		}
	}
	return out
}

// warmed takes note of children that the client has taken.
func (a *arrivals) warmed(names map[string]struct{}) {
	for name := range names {
		switch s, arriving := a.stages[name]; {
		case !arriving:
		case s&answered != 0 && s&resolving == 0:
			a.arrive(name)
		default:
			a.stages[name] = s | warmed
		}
	}
}

// resolved ends the moments that have passed.
func (a *arrivals) resolved(now time.Time) {
	for len(a.moments) > 0 && !now.Before(a.moments[0].until) {
		names := a.moments[0].names
		a.moments = a.moments[1:]
		for name := range names {
			if a.stages[name]&resolving != 0 {
				a.arrive(name)
			}
		}
	}
}

func (a *arrivals) arrive(name string) {
	if delete(a.stages, name); len(a.stages) == 0 {
		a.stages, a.moments = nil, nil
	}
}

// keep forgets all but the names that are kept.
func (a *arrivals) keep(kept func(name string) bool) {
	for name := range a.stages {
		if !kept(name) {
			a.arrive(name)
		}
	}
}

// wake is the end of the first moment, zero for none.
func (a *arrivals) wake() time.Time {
	if len(a.moments) == 0 {
		return time.Time{}
	}
	return a.moments[0].until
}

// settled says that the client has all targets and their children: nothing can
// have to wait for them.
func (k *kind) settled() bool {
	if len(k.arrivals.stages) > 0 || k.session.Lacks() {
		return false
	}
	for _, child := range k.children {
		if child.session.Pending() {
			return false
		}
		for range child.session.Refused() {
			return false
		}
	}
	return true
}

// ready says whether a resource may be sent that refers to a target: the client
// has it, or does not ask for it, or there is none.
func (k *kind) ready(name string) bool {
	if k.session.Offered(name) == nil {
		return true
	}
	if due, isNew := k.session.Lacking(name); due && isNew {
		return false
	}
	if _, arriving := k.arrivals.stages[name]; arriving {
		return false
	}
	for _, child := range k.children {
		s := child.session
		if due, _ := s.Lacking(name); due || s.Wants(name) && s.Offered(name) != nil && !s.Has(name) {
			return false
		}
	}
	return true
}
