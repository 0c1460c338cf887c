package security

import (
	"fmt"

	"github.com/portolan-mesh/portolan/discovery/kube/remote"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/storage/secret"
	"github.com/portolan-mesh/portolan/xds/verdict"
)

// clusters judges a Secret that names clusters of Kubernetes: whether the server follows them as it
// says.
func (j *judge) clusters(object *config.Config, spec *secret.Spec) {
	if !remote.Labelled(object) {
		return
	}
	root := j.Mesh().MeshConfig().GetRootNamespace()
	if object.Namespace != root {
		j.Add(verdict.Verdict{
			Code: verdict.ClusterElsewhere, Field: "metadata.labels[" + remote.Label + "]",
			Message: fmt.Sprintf("has no effect in the namespace %s: the Secrets of clusters are in %s", object.Namespace, root),
			Remedy:  "apply it there, and delete it here",
		})
		return
	}
	for _, name := range remote.Names(object) {
		v := verdict.Verdict{Field: fieldOf(name)}
		holder := remote.Holder(name, j.Objects(schema.Secret, root))
		fault := j.ClusterFault(object.Key().Path(), name)
		switch {
		case j.Facts().FlagClusters.Value(name):
			v.Code = verdict.ClusterTaken
			v.Message = fmt.Sprintf("has no effect: --services-kube names the cluster %s too, and counts", name)
			v.Remedy = "take the flag off the servers, or the entry out of the Secret"
		case holder != nil && holder.Key() != object.Key():
			v.Code, v.Other = verdict.ClusterTaken, holder.Key()
			v.Message = fmt.Sprintf("has no effect: %s names the cluster %s too, and is older", holder.Key(), name)
			v.Remedy = "take the entry out of one of the two"
		case fault.Reason == "" || fault.Content != spec.Sealed.Content:
			continue
		case fault.Away:
			v.Code = verdict.ClusterAway
			v.Message = fmt.Sprintf("the leading server cannot follow the cluster %s, and serves what was last known of it: %s", name, fault.Reason)
			v.Remedy = "see that the cluster answers, and what its account may do"
		default:
			v.Code = verdict.ClusterUnusable
			v.Message = fmt.Sprintf("the leading server cannot use the kubeconfig of the cluster %s: %s", name, fault.Reason)
			v.Remedy = "store it again, as istioctl create-remote-secret makes it"
		}
		j.Add(v)
	}
}
