package generate

import (
	"fmt"
	"iter"
	"runtime/debug"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// Panic is the error of a resource whose generator panicked.
type Panic struct {
	Value any
	Stack []byte
}

// Error implements error.
func (p *Panic) Error() string { return fmt.Sprintf("internal error: %v", p.Value) }

// Build makes the resource with a name, nil if g makes no message. It turns a panic of g
// into an error, so an unexpected object does not harm other resources.
func Build(g Generator, v *mesh.View, name string) (built *resource.Resource, err error) {
	defer recovered(&err)
	message, needs, err := g.Build(v, name)
	return newResource(name, message, needs, err)
}

// Empty makes the resource that answers an unknown name, nil if e makes no message.
func Empty(e Emptier, name string) (*resource.Resource, error) {
	message, needs, err := e.Empty(name)
	return newResource(name, message, needs, err)
}

// Otherwise makes the other form of a resource, nil if it has none, see protocol.Type.
func Otherwise(t ResourceType, name string) (*resource.Resource, error) {
	return newResource(name, t.Otherwise(name), nil, nil)
}

// Turn returns the turn of a resource that changes from one form to another, and the form for now,
// nil for none. That form needs what both need.
func Turn(t ResourceType, has, wants *resource.Resource) (number int, interim *resource.Resource) {
	number, message := t.Turn(has.Body, wants.Body)
	if message == nil {
		return number, nil
	}
	interim, err := newResource(wants.Name, message, slices.Concat(wants.Needs, has.Needs), nil)
	if err != nil {
		return number, nil // the resource itself goes in this turn
	}
	return number, interim
}

// Announce makes a form of the resource has that names more clusters, see Announcer. It
// needs what has needs, and these clusters.
func Announce(a Announcer, has *resource.Resource, clusters []string) (*resource.Resource, error) {
	message, err := a.Announce(has, clusters)
	return newResource(has.Name, message, slices.Concat(has.Needs, resource.TrafficTo(clusters)), err)
}

// newResource checks, encodes and hashes a message.
func newResource(name string, message proto.Message, needs []resource.Need, err error) (*resource.Resource, error) {
	if err != nil || message == nil {
		return nil, err
	}
	return resource.New(name, message, needs...)
}

// Compose calls Composer.Compose. It turns a panic into an error, like Build.
func Compose(c Composer, own *resource.Resource, parts iter.Seq[*resource.Resource]) (whole *resource.Resource, err error) {
	defer recovered(&err)
	return c.Compose(own, parts)
}

func recovered(err *error) {
	if value := recover(); value != nil {
		*err = &Panic{value, debug.Stack()}
	}
}
