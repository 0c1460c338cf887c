package integration

import (
	"strconv"
	"strings"

	"github.com/portolan-mesh/portolan/discovery/identity/jwks/jwkstest"
)

// tokenIssuer is the TokenIssuer of an issuer. The lines of spec follow its URL and its CA.
func tokenIssuer(name string, issuer *jwkstest.Issuer, spec ...string) string {
	return fill(`
apiVersion: portolan.io/v1
kind: TokenIssuer
metadata: {name: $name, namespace: istio-system}
spec:
  issuer: $issuer
  ca: $ca
  $spec
`, "$name", name, "$issuer", issuer.URL, "$ca", strconv.Quote(issuer.CA), "$spec", strings.Join(spec, "\n  "))
}

// forPortolan is the line of a TokenIssuer that accepts the audience of the tokens of jwt.
const forPortolan = "audiences: [portolan]"

// subjectIs is the line of a TokenIssuer that maps the subject of a token to a service account
// in a namespace.
func subjectIs(account, namespace string) string {
	return fill("workloads: [{match: [{claim: [sub], values: [$account]}], namespace: $namespace, serviceAccount: $account}]",
		"$account", account, "$namespace", namespace)
}
