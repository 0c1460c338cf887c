package plan

import (
	"bytes"

	"google.golang.org/protobuf/types/known/anypb"

	"github.com/portolan-mesh/portolan/storage/config"
)

// A store may give Decide an object whose spec is still encoded, in an Any, and
// spare itself the reading of a spec that is to be replaced. The spec of the
// changed object is then an Any, too, ready to be stored. The process must have
// encoded the stored spec itself, and its codec must have it Known: of those, and
// of no others, equal specs have equal bytes.

// respecify is spec for a stored spec that is encoded.
func respecify(before *anypb.Any, after any) (encoded any, changed bool) {
	value, err := config.MarshalSpec(after, nil)
	switch {
	case err != nil:
		return after, true // whoever stores it meets the error again
	case bytes.Equal(value, before.Value):
		return before, false
	}
	return &anypb.Any{TypeUrl: before.TypeUrl, Value: value}, true
}
