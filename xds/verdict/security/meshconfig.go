package security

import (
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/xds/verdict"
)

// MeshConfig judges a MeshConfig: outside the root namespace it has no effect.
func MeshConfig(j *verdict.Judge, object *config.Config) {
	root := j.Mesh().MeshConfig().GetRootNamespace()
	if fault := schema.MeshConfigElsewhere(object.Key(), root); fault != nil {
		j.Add(verdict.Verdict{
			Code:    verdict.MeshConfigUnused,
			Message: "is in namespace " + object.Namespace + ", and the MeshConfig of the mesh is in " + root + ": it has no effect",
			Remedy:  "apply it there with -n " + root + ", and delete it here",
		})
	}
}
