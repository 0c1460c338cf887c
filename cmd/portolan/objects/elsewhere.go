package objects

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/hashicorp/go-multierror"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/portolan-mesh/portolan/cmd/portolan/cli"
	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/client"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/table"
	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// otherSource returns the source of an object other than the store, with the object's place there; ""
// for an object of the store.
func otherSource(object *unstructured.Unstructured) string {
	return object.GetAnnotations()[config.SourceAnnotation]
}

// foundElsewhere returns the source, other than the store, from which the server has an object; ""
// if the object is the store's, not there, or none that the user may read.
func foundElsewhere(ctx context.Context, c *client.Client, kind *schema.Schema, key config.Key) (string, error) {
	object, err := c.Get(ctx, client.Resource(kind), key.Namespace, key.Name)
	switch {
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err):
		return "", nil
	case err != nil:
		return "", err
	}
	return otherSource(object), nil
}

// onlyOfStore refuses objects of other sources, all at once; done is what was not done to them.
func onlyOfStore(all []storedOnly, done string) error {
	var faults *multierror.Error
	for _, s := range all {
		if from := otherSource(s.object); from != "" {
			faults = multierror.Append(faults, readOnly(s.key, from))
		}
	}
	if err := cli.NothingDone(done, faults); err != nil {
		return exit.With(exit.Data, err)
	}
	return nil
}

// readOnly says why an object of another source than the store cannot be changed.
func readOnly(key config.Key, source string) error {
	return fmt.Errorf("%s: %s", key, storage.ChangeInSource(source))
}

// bySource says why objects of other sources than the store cannot be changed, with an error for
// each source; nil for no objects.
func bySource(all []storedOnly) (out *multierror.Error) {
	of := map[string][]storedOnly{}
	for _, s := range all {
		name := table.Source(s.object.GetAnnotations())
		of[name] = append(of[name], s)
	}
	for _, name := range slices.Sorted(maps.Keys(of)) {
		first, from := of[name][0].key, otherSource(of[name][0].object)
		err := readOnly(first, from)
		if n := len(of[name]); n > 1 {
			err = fmt.Errorf("%d objects come from the source %s: change them there, such as %s (%s)", n, name, first, from)
		}
		out = multierror.Append(out, err)
	}
	return out
}
