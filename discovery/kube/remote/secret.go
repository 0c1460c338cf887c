package remote

import (
	"fmt"
	"iter"
	"slices"

	"github.com/hashicorp/go-multierror"

	"github.com/portolan-mesh/portolan/cache/kube/cluster"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/errlist"
	"github.com/portolan-mesh/portolan/storage/secret"
)

// Label is the label of Secrets that name clusters, with the value "true", as in Istio.
const Label = "istio/multiCluster"

// Labelled says whether a Secret has the label.
func Labelled(object *config.Config) bool { return object.Labels[Label] == "true" }

// Names returns the names of the clusters that a stored Secret of the root namespace names, in order.
func Names(object *config.Config) (out []string) {
	spec, ok := object.Spec.(*secret.Spec)
	if !ok || spec.Sealed == nil || !Labelled(object) {
		return nil
	}
	for _, e := range spec.Sealed.Entries {
		out = append(out, e.Name)
	}
	return out
}

// Holder returns the Secret that counts for the name of a cluster among those of the root namespace,
// nil if none names it.
func Holder(name string, secrets iter.Seq[*config.Config]) (holder *config.Config) {
	for object := range secrets {
		if slices.Contains(Names(object), name) && (holder == nil || config.Compare(object, holder) < 0) {
			holder = object
		}
	}
	return holder
}

// Check returns all that is wrong with the data of a Secret that names clusters.
func Check(entries map[string][]byte) error {
	var faults *multierror.Error
	for _, name := range secret.Names(entries) {
		if err := cluster.CheckContent(entries[name]); err != nil {
			faults = multierror.Append(faults, fmt.Errorf("data[%s]: the label %s makes it the kubeconfig of a cluster: %w", name, Label, err))
		}
	}
	if len(entries) == 0 {
		faults = multierror.Append(faults, fmt.Errorf("data: has no entry, and the label %s makes each the kubeconfig of a cluster: write NAME: KUBECONFIG", Label))
	}
	if faults != nil {
		faults.ErrorFormat = errlist.OneLine
	}
	return faults.ErrorOrNil()
}
