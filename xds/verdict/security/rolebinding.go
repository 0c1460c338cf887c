package security

import (
	"fmt"
	"slices"

	"github.com/portolan-mesh/portolan/storage/access"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/xds/verdict"
)

// builtIn are the roles that exist without an object.
var builtIn = []string{access.Viewer, access.Editor, access.Admin, access.SecretReader, access.Issuer}

// RoleBinding judges a RoleBinding.
func RoleBinding(j *verdict.Judge, object *config.Config) { (&judge{j}).roleBinding(object) }

// roleBinding warns if the role of a RoleBinding does not exist.
func (j *judge) roleBinding(object *config.Config) {
	spec, ok := object.Spec.(*access.RoleBinding)
	if !ok || slices.Contains(builtIn, spec.Role) {
		return
	}
	root := j.Mesh().MeshConfig().GetRootNamespace()
	where := "namespace " + root
	if object.Namespace != root {
		where += " nor of " + object.Namespace
	}
	for _, namespace := range []string{root, object.Namespace} {
		if j.Object(config.Key{Kind: schema.Role, Namespace: namespace, Name: spec.Role}) != nil {
			return
		}
	}
	j.Add(verdict.Verdict{
		Code:    verdict.RoleMissing,
		Field:   "spec.role",
		Message: fmt.Sprintf("%q is neither a built-in role nor a Role of %s: the binding gives nobody any right", spec.Role, where),
		Remedy:  "apply the Role, or delete the binding",
	})
}

// Role judges a Role.
func Role(j *verdict.Judge, object *config.Config) { (&judge{j}).role(object) }

// role warns if no binding gives a Role to anybody. A binding of the Role's namespace can; for
// a Role of the root namespace one of any, since it goes before Roles of its name elsewhere.
func (j *judge) role(object *config.Config) {
	root := j.Mesh().MeshConfig().GetRootNamespace()
	ofAll := object.Namespace == root
	if ofAll || j.Object(config.Key{Kind: schema.Role, Namespace: root, Name: object.Name}) == nil {
		j.Read(verdict.BindersRow, object.Name)
		for binding := range j.Mesh().Inputs().Configs.List(schema.RoleBinding, "") {
			if verdict.BoundBy(binding) == object.Name && (ofAll || binding.Namespace == object.Namespace) {
				return
			}
		}
	}
	where := "namespace " + object.Namespace
	if ofAll {
		where = "any namespace"
	}
	j.Add(verdict.Verdict{
		Code:    verdict.RoleUnbound,
		Message: fmt.Sprintf("no RoleBinding of %s gives it to anybody", where),
		Remedy:  "apply a RoleBinding with this role, or delete the Role",
	})
}
