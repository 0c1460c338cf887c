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

// boundBy is the role of a RoleBinding, empty for another object.
func boundBy(object *config.Config) string {
	if object == nil {
		return ""
	}
	spec, ok := object.Spec.(*access.RoleBinding)
	if !ok {
		return ""
	}
	return spec.Role
}

// role judges whether a binding gives a Role to somebody: one of its namespace, or of any for
// a Role of the whole mesh, which goes before those of its name in namespaces.
func (j *judge) role(object *config.Config) {
	root := j.mesh().Inputs().Mesh.GetRootNamespace()
	ofAll := object.Namespace == root
	if ofAll || j.object(config.Key{Kind: schema.Role, Namespace: root, Name: object.Name}) == nil {
		j.read(bindersRow, object.Name)
		for binding := range j.mesh().Inputs().Configs.List(schema.RoleBinding, "") {
			if boundBy(binding) == object.Name && (ofAll || binding.Namespace == object.Namespace) {
				return
			}
		}
	}
	where := "namespace " + object.Namespace
	if ofAll {
		where = "any namespace"
	}
	j.add(Verdict{
		Code:    RoleUnbound,
		Message: fmt.Sprintf("no RoleBinding of %s gives it to anybody", where),
		Remedy:  "apply a RoleBinding with this role, or delete the Role",
	})
}
