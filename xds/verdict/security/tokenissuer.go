package security

import (
	"fmt"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/xds/verdict"
)

// TokenIssuer judges a TokenIssuer.
func TokenIssuer(j *verdict.Judge, object *config.Config) { (&judge{j}).tokenIssuer(object) }

// tokenIssuer warns of a TokenIssuer outside the root namespace, where servers do not look for
// it, and of keys that cannot be fetched.
func (j *judge) tokenIssuer(object *config.Config) {
	if root := j.Mesh().MeshConfig().GetRootNamespace(); object.Namespace != root {
		j.Add(verdict.Verdict{
			Code:    verdict.IssuerElsewhere,
			Message: fmt.Sprintf("is in namespace %s, and the issuers of the mesh are in %s: its tokens prove nothing", object.Namespace, root),
			Remedy:  "apply it there with -n " + root + ", and delete it here",
		})
		return
	}
	path := object.Key().Path()
	j.Read(verdict.IssuerRow, path)
	if fault := j.Facts().KeyFaults.Value(path); fault != "" {
		j.Add(verdict.Verdict{
			Code:    verdict.IssuerKeys,
			Message: "the leading server cannot fetch its keys: " + fault,
			Remedy:  "see that its issuer answers, and that spec.issuer, jwksUri and ca are right",
		})
	}
}
