package listener_test

import (
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/cache/kube/clustersecret"
	"github.com/portolan-mesh/portolan/storage/secret"
	clusters "github.com/portolan-mesh/portolan/xds/generate/cluster"
	"github.com/portolan-mesh/portolan/xds/generate/listener"
	"github.com/portolan-mesh/portolan/xds/resource"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// TestSecretsThatAreNotReadYet: a proxy of an earlier stream keeps the very listeners and clusters
// that it has while secrets of its namespace are not read. All others do without what is missing.
func TestSecretsThatAreNotReadYet(t *testing.T) {
	t.Parallel()
	w := xdstest.NewWorld(t,
		edgeGateway("g", secure("a", "a.test")+", "+strings.Replace(secure("m", "m.test"), "SIMPLE", "MUTUAL", 1)),
		xdstest.HTTPService("default/out", "out.example", "10.9.0.1"),
		xdstest.Object("DestinationRule", "out", "{host: out.example, trafficPolicy: {tls: {mode: MUTUAL, credentialName: m}}}"))
	made := func(returning bool) string {
		n := edgeNode
		n.Returning = returning
		var out []string
		for _, r := range append(w.Build(n, listener.Generator{}), w.Build(n, clusters.Generator{})...) {
			var needs []string
			for _, need := range r.Needs {
				if need.TypeURL == resource.SecretType {
					needs = append(needs, need.Name)
				}
			}
			out = append(out, r.Name+" "+r.Version+" "+strings.Join(needs, " "))
		}
		return strings.Join(out, "\n")
	}
	without := made(false)
	w.PutSecret("a", secret.TLSCert, secret.TLSKey)
	w.PutSecret("m", secret.TLSCert, secret.TLSKey, secret.Authority)
	with := made(false)
	if with == without || !strings.Contains(with, "kubernetes://m-cacert") {
		t.Fatalf("with the secrets there is\n%s\nwithout\n%s", with, without)
	}
	w.PutSecret("a")
	w.PutSecret("m")
	unread := clustersecret.Set{}.WithUnread("default", true)
	for _, step := range []struct {
		name      string
		set       clustersecret.Set
		returning bool
		want      string
	}{
		{"all are read", clustersecret.Set{}, true, without},
		{"they are not read", unread, true, with},
		{"they are not read, and the proxy is new", unread, false, without},
		{"those of another namespace are not read", clustersecret.Set{}.WithUnread("shop", true), true, without},
		{"they are read, and are not there", unread.WithUnread("default", false), true, without},
	} {
		w.SetClusterSecrets(step.set)
		if got := made(step.returning); got != step.want {
			t.Errorf("%s: there is\n%s\nwant\n%s", step.name, got, step.want)
		}
	}
}
