package rest

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portolan-mesh/portolan/storage/refusal"
)

// maxJSONPatch bounds the operations of a JSON patch, as in Kubernetes.
const maxJSONPatch = 10000

// readJSONPatch reads a JSON patch. It refuses paths that RFC 6901 does not know: the library takes
// "x/data" for "/data".
func readJSONPatch(text []byte) (jsonpatch.Patch, error) {
	operations, err := jsonpatch.DecodePatch(text)
	if err != nil {
		return nil, refusal.BadRequest("the JSON patch cannot be read: " + err.Error())
	}
	if len(operations) > maxJSONPatch {
		return nil, refusal.New(http.StatusRequestEntityTooLarge, metav1.StatusReasonRequestEntityTooLarge,
			fmt.Sprintf("the JSON patch has %d operations, and may have %d: send several", len(operations), maxJSONPatch))
	}
	for i, o := range operations {
		for _, pointer := range []func() (string, error){o.Path, o.From} {
			at, err := pointer()
			if err == nil && at != "" && !strings.HasPrefix(at, "/") { // where one is missing, the library says so
				return nil, refusal.BadRequest(fmt.Sprintf("operation %d of the JSON patch: %q is no path: one begins with /, as in /%s", i, at, at))
			}
		}
	}
	return operations, nil
}

// readsAt says whether a JSON patch tells by its outcome what is at a path, or copies it elsewhere.
// No other kind of patch reads.
func readsAt(operations jsonpatch.Patch, paths ...string) bool {
	return slices.ContainsFunc(operations, func(o jsonpatch.Operation) bool {
		if !slices.Contains([]string{"test", "copy", "move"}, o.Kind()) {
			return false
		}
		path, _ := o.Path()
		from, _ := o.From()
		return slices.ContainsFunc(paths, func(one string) bool {
			under := func(at string) bool { return at == "" || at == one || strings.HasPrefix(at, one+"/") }
			return under(path) && o.Kind() == "test" || from != "" && under(from)
		})
	})
}
