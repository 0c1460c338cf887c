package verdict_test

import (
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/xds/verdict"
	"github.com/portolan-mesh/portolan/xds/verdict/index"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// TestIssuersOutsideTheRootNamespace: they have no effect, and so have a verdict.
func TestIssuersOutsideTheRootNamespace(t *testing.T) {
	t.Parallel()
	issuer := func(namespace string) string {
		return "{apiVersion: portolan.io/v1, kind: TokenIssuer, metadata: {name: ci, namespace: " + namespace + "}, spec: {issuer: 'https://ci.example', audiences: [a], users: {}}}"
	}
	w := xdstest.NewWorld(t, issuer("istio-system"), issuer("shop"))
	var x *index.Index
	x = x.Next(verdict.Facts{Mesh: w.Context()})
	var told []string
	for l := range x.Lists() {
		for _, v := range l.Verdicts {
			told = append(told, l.Of.Namespace+" "+string(v.Code)+" "+v.Message)
		}
	}
	if got := strings.Join(told, "|"); got != "shop PTL0411 is in namespace shop, and the issuers of the mesh are in istio-system: its tokens prove nothing" {
		t.Errorf("told: %s", got)
	}
}
