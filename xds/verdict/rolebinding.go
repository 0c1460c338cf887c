package verdict

import (
	"fmt"
	"slices"

	"github.com/portolan-mesh/portolan/storage/access"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// builtIn are the roles that are there without an object.
var builtIn = []string{access.Viewer, access.Editor, access.Admin, access.SecretReader, access.Issuer}

// roleBinding judges whether the role of a RoleBinding is there.
func (j *judge) roleBinding(object *config.Config) {
	spec, ok := object.Spec.(*access.RoleBinding)
	if !ok || slices.Contains(builtIn, spec.Role) {
		return
	}
	root := j.mesh().Inputs().Mesh.GetRootNamespace()
	where := "namespace " + root
	if object.Namespace != root {
		where += " nor of " + object.Namespace
	}
	for _, namespace := range []string{root, object.Namespace} {
		if j.object(config.Key{Kind: schema.Role, Namespace: namespace, Name: spec.Role}) != nil {
			return
		}
	}
	j.add(Verdict{
		Code:    RoleMissing,
		Field:   "spec.role",
		Message: fmt.Sprintf("%q is neither a built-in role nor a Role of %s: the binding gives nobody any right", spec.Role, where),
		Remedy:  "apply the Role, or delete the binding",
	})
}
