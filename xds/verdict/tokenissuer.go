package verdict

import (
	"fmt"

	"github.com/portolan-mesh/portolan/storage/config"
)

// tokenIssuer judges whether a TokenIssuer is where servers look for one, and whether its keys
// can be fetched.
func (j *judge) tokenIssuer(object *config.Config) {
	if root := j.mesh().Inputs().Mesh.GetRootNamespace(); object.Namespace != root {
		j.add(Verdict{
			Code:    IssuerElsewhere,
			Message: fmt.Sprintf("is in namespace %s, and the issuers of the mesh are in %s: its tokens prove nothing", object.Namespace, root),
			Remedy:  "apply it there with -n " + root + ", and delete it here",
		})
		return
	}
	path := object.Key().Path()
	j.read(issuerRow, path)
	if fault := j.index.facts.KeyFaults.Value(path); fault != "" {
		j.add(Verdict{
			Code:    IssuerKeys,
			Message: "the leading server cannot fetch its keys: " + fault,
			Remedy:  "see that its issuer answers, and that spec.issuer, jwksUri and ca are right",
		})
	}
}
