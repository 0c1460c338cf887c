package protocoltest

import (
	"iter"
	"maps"
	"slices"

	"github.com/portolan-mesh/portolan/xds/delivery/nameset"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// NameSet returns a set of names that shares nothing with others.
func NameSet(names ...string) nameset.Set { return (*nameset.Table)(nil).Of(names) }

// Versions returns what a client states, from versions by name.
func Versions(stated map[string]string) protocol.Versions {
	var out []protocol.Stated
	for _, name := range slices.Sorted(maps.Keys(stated)) {
		out = append(out, protocol.Stated{Name: name, Version: stated[name]})
	}
	return protocol.VersionsOf(out)
}

// Everything allows all additions, and all removals.
func Everything() protocol.Allow {
	return protocol.Allow{Remove: func(string) bool { return true }}
}

// Children iterates over the resources that a client warms with one: the endpoints of a
// cluster, the routes of a listener.
func Children(r *resource.Resource) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, n := range r.Needs {
			if (n.Kind == resource.Warm || n.Kind == resource.Covered) && !yield(n.Name) {
				return
			}
		}
	}
}
