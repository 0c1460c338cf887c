package plan

import (
	"bytes"

	"google.golang.org/protobuf/types/known/anypb"

	"github.com/portolan-mesh/portolan/storage/config"
)

// A store may pass Decide an object whose spec is still encoded, in an Any, and so need not
// decode a spec that is replaced. The spec of the changed object is then an Any, too, ready
// to be stored. The process must have encoded the stored spec itself, and its codec must
// say that it is Known: only then do equal specs have equal bytes.

// respecify is like spec, for a stored spec that is encoded.
func respecify(before *anypb.Any, after any) (encoded any, changed bool) {
	value, err := config.MarshalSpec(after, nil)
	switch {
	case err != nil:
		return after, true // the store gets the same error when it encodes the spec
	case bytes.Equal(value, before.Value):
		return before, false
	}
	return &anypb.Any{TypeUrl: before.TypeUrl, Value: value}, true
}
