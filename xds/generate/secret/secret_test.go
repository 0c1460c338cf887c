package secret_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"

	"github.com/portolan-mesh/portolan/cache/kube/clustersecret"
	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/storage/seal"
	"github.com/portolan-mesh/portolan/storage/sealing"
	stored "github.com/portolan-mesh/portolan/storage/secret"
	"github.com/portolan-mesh/portolan/storage/secret/secrettest"
	"github.com/portolan-mesh/portolan/xds/generate/secret"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// describeSecret describes a message in short.
func describeSecret(message any) string {
	s, ok := message.(*tlsv3.Secret)
	if !ok || s == nil {
		return ""
	}
	if c := s.GetTlsCertificate(); c != nil {
		text := c.GetCertificateChain().GetFilename() + " " + c.GetPrivateKey().GetFilename() + " in " + c.GetWatchedDirectory().GetPath()
		if len(c.GetCertificateChain().GetInlineBytes()) > 0 && len(c.GetPrivateKey().GetInlineBytes()) > 0 {
			text = "a pair"
		}
		return text
	}
	v := s.GetValidationContext()
	if name := v.GetTrustedCa().GetFilename(); name != "" {
		text := name + " in " + v.GetWatchedDirectory().GetPath()
		if list := v.GetCrl().GetFilename(); list != "" {
			text += ", revoked " + list
		}
		return text
	}
	text := "roots " + string(v.GetTrustedCa().GetInlineBytes()[len("-----BEGIN "):len("-----BEGIN CERT")])
	if len(v.GetCrl().GetInlineBytes()) > 0 {
		text += " and a list"
	}
	return text
}

func TestSecret(t *testing.T) {
	t.Parallel()
	w := xdstest.NewWorld(t)
	pair := secrettest.New(t, time.Hour, "web.example")
	all := map[string][]byte{stored.TLSCert: pair.Cert, stored.TLSKey: pair.Key, stored.TLSAuthority: pair.Cert, stored.TLSRevoked: pair.RevocationList(t)}
	w.Apply(
		xdstest.Secret("edge/all", all),
		xdstest.Secret("edge/pair", map[string][]byte{stored.Cert: pair.Cert, stored.Key: pair.Key}),
		xdstest.Secret("edge/pair-cacert", map[string][]byte{stored.Authority: pair.Cert}),
		xdstest.Secret("edge/odd-cacert", map[string][]byte{stored.TLSCert: pair.Cert, stored.TLSKey: pair.Key}),
		xdstest.Secret("edge/words", map[string][]byte{"cert": []byte("a word"), "key": []byte("another")}),
		xdstest.Secret("other/theirs", all),
	)
	own := xdstest.Node{Type: discovery.Router, Namespace: "edge", Certified: true}
	for name, c := range map[string]struct {
		node xdstest.Node
		want map[string]string
	}{
		"stored": {own, map[string]string{
			"kubernetes://all":                "a pair",
			"kubernetes://all-cacert":         "roots CERT and a list",
			"kubernetes://pair":               "a pair",
			"kubernetes://pair-cacert":        "roots CERT",
			"kubernetes://odd-cacert":         "a pair", // the name of a pair may end so
			"kubernetes://odd":                "",
			"kubernetes://words":              "",
			"kubernetes://none":               "",
			"kubernetes://":                   "",
			"kubernetes://-cacert":            "",
			"kubernetes://theirs":             "",
			"kubernetes://other/theirs":       "",
			"kubernetes://../other/theirs":    "",
			"kubernetes-gateway://edge/all":   "",
			"all":                             "",
			"kubernetes://all-cacert-cacert":  "",
			"kubernetes://pair-cacert-cacert": "roots CERT",
		}},
		"files": {own, map[string]string{
			"file-cert:/tls/web.crt~/tls/web.key":   "/tls/web.crt /tls/web.key in /tls",
			"file-cert:/tls/web.crt~/keys/web.key":  "/tls/web.crt /keys/web.key in ",
			"file-cert:/tls/web.crt":                "",
			"file-cert:~":                           "",
			"file-root:/tls/roots.crt":              "/tls/roots.crt in /tls",
			"file-root:":                            "",
			"file-root:/tls/roots.crt~/crl/old.pem": "/tls/roots.crt in /tls, revoked /crl/old.pem",
			"file-root:system~/crl/old.pem":         "/etc/ssl/certs/ca-certificates.crt in /etc/ssl/certs, revoked /crl/old.pem",
			"file-root:~/crl/old.pem":               "",
			"file-root:system":                      "/etc/ssl/certs/ca-certificates.crt in /etc/ssl/certs",
			"default":                               "/certs/own.crt /certs/own.key in /certs",
			"ROOTCA":                                "/certs/roots.crt in /certs",
		}},
		"on another system": {
			xdstest.Node{Type: discovery.Router, Namespace: "edge", SystemRoots: "/etc/pki/tls/certs/ca-bundle.crt"},
			map[string]string{"file-root:system": "/etc/pki/tls/certs/ca-bundle.crt in /etc/pki/tls/certs"},
		},
		"without a certificate": {xdstest.Node{Type: discovery.Router, Namespace: "edge"}, map[string]string{"default": "", "ROOTCA": "", "kubernetes://all": "a pair"}},
		"from another machine":  {xdstest.Node{Type: discovery.Router, Namespace: "edge", Remote: true}, map[string]string{"kubernetes://all": "", "file-root:/roots.crt": "/roots.crt in /"}},
		"from another machine with an identity": {
			xdstest.Node{Type: discovery.Router, Namespace: "edge", Remote: true, Identity: "spiffe://cluster.local/ns/edge/sa/gateway"},
			map[string]string{"kubernetes://all": "a pair"},
		},
		"with the identity of another": {
			xdstest.Node{Type: discovery.Router, Namespace: "edge", Identity: "spiffe://cluster.local/ns/other/sa/gateway"},
			map[string]string{"kubernetes://all": "", "kubernetes://all-cacert": ""},
		},
	} {
		got := map[string]string{}
		for asked := range c.want {
			message, needs, err := secret.Generator{}.Build(w.View(c.node), asked)
			if err != nil || needs != nil {
				t.Errorf("%s: %s: %v %v", name, asked, needs, err)
			}
			got[asked] = describeSecret(message)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestSecretOfACluster: a secret of a cluster is used if the store has none of its name, also none
// without a pair. It is for the proxies of its namespace.
func TestSecretOfACluster(t *testing.T) {
	t.Parallel()
	w := xdstest.NewWorld(t)
	ring, id := seal.Ring{}.WithNew()
	pair, other := secrettest.New(t, time.Hour, "web.example"), secrettest.New(t, time.Hour, "other.example")
	object := &config.Config{Meta: config.Meta{GroupVersionKind: schema.Secret, Namespace: "edge", Name: "door"}}
	sealed, err := sealing.With(ring, id, object.Key(), map[string][]byte{stored.TLSCert: pair.Cert, stored.TLSKey: pair.Key})
	if err != nil {
		t.Fatal(err)
	}
	object.Spec = &stored.Spec{Type: stored.TLS, Sealed: sealed}
	has := func(namespace string, want []byte) {
		t.Helper()
		message, _, err := secret.Generator{}.Build(w.View(xdstest.Node{Type: discovery.Router, Namespace: namespace, Certified: true}), "kubernetes://door")
		var got []byte
		if message != nil {
			got = message.(*tlsv3.Secret).GetTlsCertificate().GetCertificateChain().GetInlineBytes()
		}
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s gets %q (%v), want %q", namespace, got, err, want)
		}
	}
	set := clustersecret.NewSet(&ring).With("edge/door", object)
	w.SetClusterSecrets(set)
	has("edge", pair.Cert)
	has("shop", nil)
	w.Apply(xdstest.Secret("edge/door", map[string][]byte{stored.TLSCert: other.Cert, stored.TLSKey: other.Key}))
	has("edge", other.Cert)
	w.PutSecret("edge/door", "closed")
	has("edge", nil)
	w.PutSecret("edge/door")
	has("edge", pair.Cert)
	w.SetClusterSecrets(set.With("edge/door", nil))
	has("edge", nil)
}

// TestAClassHasNoSecret: shared resources never contain a secret.
func TestAClassHasNoSecret(t *testing.T) {
	t.Parallel()
	w := xdstest.NewWorld(t)
	view := mesh.NewView(w.Context(), w.Class(xdstest.Node{Type: discovery.Router}))
	if _, _, err := view.OpenSecret("all"); err == nil {
		t.Error("a class is given the content of a secret")
	}
}
