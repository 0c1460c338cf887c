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
	// Affected yields the names of resources that may appear or disappear because of d,
	// and maybe more. If d.Whole is set, it yields all that the view may have. It need
	// not yield existing resources that change: the view knows which rows they were built
	// from. Reads of v are not recorded.
	Affected(v *mesh.View, d mesh.Delta) iter.Seq[string]
	// Build makes the message of one resource, nil if the view has none with that name,
	// and its needs. It is pure: it reads only v, and equal answers of v give equal bytes
	// and needs. The function Build makes the resource.
	Build(v *mesh.View, name string) (proto.Message, []resource.Need, error)
}

// Emptier is for generators whose clients wait for each resource that they name. An empty
// resource answers an unknown name.
type Emptier interface {
	// Empty makes the answer to an unknown name, like Build. Nil means to answer that the
	// resource is removed.
	Empty(name string) (proto.Message, []resource.Need, error)
}

// Gatewayless is for generators whose resources do not depend on Gateways: a changed
// Gateway adds, changes and removes none. All its patches must be Gatewayless too.
type Gatewayless interface{ Gatewayless() }

// Announcer is for generators whose clients learn of a cluster only from a resource that
// names it, and then request the cluster.
type Announcer interface {
	// Announce returns the message of a client's resource that also names these clusters,
	// without sending traffic to them.
	Announce(has *resource.Resource, clusters []string) (proto.Message, error)
}

// Composer is for generators whose resources contain other resources. Build makes the
// frame. The parts are resources of another type whose names are the name of the frame, a
// slash, and a rest without slashes. One changed part then costs its own building, and a
// copy of the others' bytes.
type Composer interface {
	// PartsURL is the type of the parts.
	PartsURL() string
	// Compose joins own, which Build made, and the parts, in the order of their names.
	// Parts of the result are those whose bytes it contains. It reads nothing else, and
	// only as many parts as it needs: equal versions of own and parts give equal bytes.
	Compose(own *resource.Resource, parts iter.Seq[*resource.Resource]) (*resource.Resource, error)
}

// As finds an optional interface, such as Composer, in a generator or in the one that it
// wraps. A wrapper has a method Unwrap, and itself implements interfaces that it must
// intercept.
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
