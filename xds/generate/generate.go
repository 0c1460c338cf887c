package generate

import (
	"iter"

	"google.golang.org/protobuf/proto"

	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// Generator makes the resources of one type. It has no state.
type Generator interface {
	// TypeURL is the type of its resources.
	TypeURL() string
	// Affected names the resources that may appear or go because of d; it may name more. If
	// d.Whole is set, it names all that the view may have. It need not name existing
	// resources that change: the view knows which rows they were built from. Reads of v are
	// not recorded.
	Affected(v *mesh.View, d mesh.Delta) iter.Seq[string]
	// Build makes the message of one resource, nil where the view has none of that
	// name, and what a client needs beside it. It is pure: it reads nothing but v, and
	// equal answers of v give equal bytes and needs. Function Build makes the resource.
	Build(v *mesh.View, name string) (proto.Message, []resource.Need, error)
}

// Emptier is what a Generator also implements whose clients wait for each resource that
// they name: an empty resource answers an unknown name.
type Emptier interface {
	// Empty makes the answer to an unknown name, as Build makes a resource; nil where
	// the name is answered as removed.
	Empty(name string) (proto.Message, []resource.Need, error)
}

// Gatewayless is what a Generator also implements, and all its patches, whose resources
// do not depend on Gateways: a changed Gateway brings, changes and takes none of them.
type Gatewayless interface{ Gatewayless() }

// Announcer is what a Generator also implements whose clients learn of a cluster only
// from a resource that names it, and request the cluster then.
type Announcer interface {
	// Announce returns the message of a resource that a client has, with more clusters
	// named in it, to which it sends nothing.
	Announce(has *resource.Resource, clusters []string) (proto.Message, error)
}

// Composer is what a Generator also implements whose resources carry other resources:
// Build makes the frame, and the parts are the resources of another type that are named
// after it: its name, a slash, and what has no slash. One changed part then costs its
// own building, and a copy of the others' bytes.
type Composer interface {
	// PartsURL is the type of the parts.
	PartsURL() string
	// Compose puts own, which Build made, and the parts together, in order of
	// names; resource.Resource.Parts are those whose bytes it carries. It reads
	// nothing else, and as many of the parts as it needs: equal versions of own and
	// parts give equal bytes.
	Compose(own *resource.Resource, parts iter.Seq[*resource.Resource]) (*resource.Resource, error)
}

// As finds what a generator also implements, such as a Composer, in the generator or in
// one that it wraps. A wrapper has a method Unwrap, and wraps what concerns it.
func As[T any](g Generator) (T, bool) {
	for {
		if found, ok := g.(T); ok {
			return found, true
		}
		wrapper, ok := g.(interface{ Unwrap() Generator })
		if !ok {
			var none T
			return none, false
		}
		g = wrapper.Unwrap()
	}
}
