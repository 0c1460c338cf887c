package verdict_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/storage/secret"
	"github.com/portolan-mesh/portolan/storage/status"
	"github.com/portolan-mesh/portolan/xds/verdict"
	"github.com/portolan-mesh/portolan/xds/verdict/index"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// encrypted returns a rule with TLS settings for the host of entry.
func encrypted(tls, more string) string {
	return rule("r", "{host: web.example.com, trafficPolicy: {tls: {"+tls+"}}"+more+"}")
}

// TestEncryption: a rule has a verdict as long as its TLS settings lack something.
func TestEncryption(t *testing.T) {
	t.Parallel()
	edge, web := proxies(router(nil)), proxies(atAddress("w", "10.0.0.1", "r"))
	const missing, sidecars = "r PTL0301 spec.trafficPolicy.tls.credentialName", "r PTL0302 spec.trafficPolicy.tls.credentialName"
	for name, test := range map[string]struct {
		objects []string
		proxies pmap.Map[*status.Proxy]
		secrets []string // entries of the secret key
		want    []string
	}{
		"no credential":          {objects: []string{entry, encrypted("mode: SIMPLE", "")}, proxies: edge},
		"nobody knows of it":     {objects: []string{entry, encrypted("mode: SIMPLE, credentialName: key", "")}},
		"no secret":              {objects: []string{entry, encrypted("mode: SIMPLE, credentialName: key", "")}, proxies: edge, want: []string{missing}},
		"a secret of other sort": {objects: []string{entry, encrypted("mode: SIMPLE, credentialName: key", "")}, proxies: edge, secrets: []string{secret.TLSCert, secret.TLSKey}, want: []string{missing}},
		"a secret":               {objects: []string{entry, encrypted("mode: MUTUAL, credentialName: key", "")}, proxies: edge, secrets: []string{secret.TLSCert, secret.TLSKey, secret.TLSAuthority}},
		"sidecars":               {objects: []string{entry, encrypted("mode: MUTUAL, credentialName: key", "")}, proxies: web, want: []string{sidecars}},
		"sidecars with a secret": {objects: []string{entry, encrypted("mode: SIMPLE, credentialName: key", ", workloadSelector: {matchLabels: {app: web}}")}, proxies: web, secrets: []string{secret.TLSAuthority}},
		"sidecars without":       {objects: []string{entry, encrypted("mode: SIMPLE, credentialName: key", ", workloadSelector: {matchLabels: {app: web}}")}, proxies: web, want: []string{missing}},
		"rule of other gateways": {objects: []string{private, rule("other/r", "{host: private.example.com, exportTo: [.], trafficPolicy: {tls: {mode: SIMPLE, credentialName: key}}}")}, proxies: edge, want: []string{"r PTL0211 spec.exportTo"}},
		"any name":               {objects: []string{entry, encrypted("mode: SIMPLE, sni: a", "")}, proxies: web, want: []string{"r PTL0303 spec.trafficPolicy.tls"}},
		"a name":                 {objects: []string{entry, encrypted("mode: SIMPLE, sni: a, subjectAltNames: [a]", "")}, proxies: web},
		"nothing is verified":    {objects: []string{entry, encrypted("mode: SIMPLE, sni: a, insecureSkipVerify: true", "")}, proxies: web},
		"any name, bytes": {
			objects: []string{streamEntry("db", "TCP"), rule("r", "{host: db.example.com, trafficPolicy: {portLevelSettings: [{port: {number: 80}, tls: {mode: SIMPLE}}, {port: {number: 81}, tls: {mode: SIMPLE}}]}}")}, proxies: web,
			want: []string{"r PTL0303 spec.trafficPolicy.portLevelSettings[0].tls"},
		},
		"within the mesh": {objects: []string{entry, encrypted("mode: ISTIO_MUTUAL", "")}, proxies: web, want: []string{"r PTL0304 spec.trafficPolicy.tls.mode"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := xdstest.NewWorld(t, test.objects...)
			before := (*index.Index)(nil).Next(verdict.Facts{Mesh: w.Context(), Proxies: test.proxies})
			if len(test.secrets) > 0 {
				w.PutSecret("key", test.secrets...)
			}
			got := slices.DeleteFunc(said(before.Next(verdict.Facts{Mesh: w.Context(), Proxies: test.proxies})), func(s string) bool { return !strings.HasPrefix(s, "r ") })
			if d := cmp.Diff(append([]string{}, test.want...), got); d != "" {
				t.Errorf("(-want +got)\n%s", d)
			}
		})
	}
}
