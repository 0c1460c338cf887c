package generate

import (
	"iter"

	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// Generator makes the resources of one type. It has no state.
type Generator interface {
	// TypeURL is the type of its resources.
	TypeURL() string
	// Affected names the resources that may appear or go because of d; more than
	// those is allowed. Where d.Whole, these are all that the view may have.
	// Changes of resources that are there already need not be named: it is known
	// which rows they were built from. Reads of v are not recorded.
	Affected(v *mesh.View, d mesh.Delta) iter.Seq[string]
	// Build makes one resource, nil where the view has none of that name. It is
	// pure: it reads nothing but v, and equal answers of v give equal bytes.
	Build(v *mesh.View, name string) (*resource.Resource, error)
}

// Emptier is a Generator whose clients wait for each resource that they name:
// a name that is unknown is answered with an empty resource.
type Emptier interface {
	// Empty makes the answer to an unknown name; nil where it is answered as
	// removed.
	Empty(name string) (*resource.Resource, error)
}

// Announcer is a Generator whose clients know no cluster but from a resource that
// names it, and ask for it then.
type Announcer interface {
	// Announce makes, of a resource that a client has, one that is the same but for
	// clusters that it names besides and leads nothing to.
	Announce(has *resource.Resource, clusters []string) (*resource.Resource, error)
}

// Composer is a Generator whose resources are put together: Build makes what is
// a resource's own, and its parts are the resources of another type that are
// named after it: its name, a slash, and what has no slash. One changed part then
// costs its own building, and a copy of the others' bytes.
type Composer interface {
	Generator
	// PartsURL is the type of the parts.
	PartsURL() string
	// Compose puts own, which Build made, and the parts together, in order of
	// names; resource.Resource.Parts are those whose bytes it carries. It reads
	// nothing else, and as many of the parts as it needs: equal versions of own and
	// parts give equal bytes.
	Compose(own *resource.Resource, parts iter.Seq[*resource.Resource]) (*resource.Resource, error)
}
