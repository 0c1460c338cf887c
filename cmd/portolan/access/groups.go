package access

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	runtimeschema "k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest/client"
	"github.com/portolan-mesh/portolan/storage/spelling"
)

// place is where a WorkloadGroup is.
type place struct{ namespace, name string }

// flags are those of machine invite that name the group.
func (p place) flags() string { return "-n " + p.namespace + " --group " + p.name }

// explainMissing adds to the error about a WorkloadGroup that is not there which ones are, as far as
// the user may list them.
func explainMissing(ctx context.Context, api *client.Client, groups runtimeschema.GroupVersionResource, missing place, err error) error {
	if !apierrors.IsNotFound(err) {
		return err
	}
	list, failed := api.List(ctx, groups, "", client.Selection{})
	if failed != nil { // the user may look into the one namespace alone
		return err
	}
	var all []place
	for _, item := range list.Items {
		all = append(all, place{item.GetNamespace(), item.GetName()})
	}
	return fmt.Errorf("%w: %s", err, instead(missing, all))
}

// maxPlaces bounds the groups that an error names.
const maxPlaces = 5

// instead says what to type in the place of a group that is not there: one of its name, one of a
// similar name in the namespace, or any of the namespace, else any.
func instead(missing place, all []place) string {
	slices.SortFunc(all, func(a, b place) int { return strings.Compare(a.namespace+"/"+a.name, b.namespace+"/"+b.name) })
	of := func(is func(place) bool) (out []string) {
		for _, p := range all {
			if is(p) {
				out = append(out, p.flags())
			}
		}
		if more := len(out) - maxPlaces; more > 0 {
			out = append(out[:maxPlaces], fmt.Sprintf("%d more", more))
		}
		return out
	}
	here := of(func(p place) bool { return p.namespace == missing.namespace })
	named := of(func(p place) bool { return p.name == missing.name })
	alike := of(func(p place) bool {
		return p.namespace == missing.namespace && spelling.Similar(missing.name, p.name)
	})
	list := func(some []string) string { return strings.Join(some, ", ") }
	switch {
	case len(all) == 0:
		return "there is no WorkloadGroup: apply one, or give --service-account for a machine that does not register itself"
	case len(named) > 0:
		return "a group of that name is elsewhere: give " + list(named)
	case len(alike) > 0:
		return "did you mean " + list(alike) + "?"
	case len(here) > 0:
		return "the namespace has others: give " + list(here) + ", or apply the group"
	}
	return "namespace " + missing.namespace + " has no WorkloadGroup: give " + list(of(func(place) bool { return true })) + ", or apply the group"
}
