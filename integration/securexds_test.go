package integration

import (
	"crypto/x509"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/discovery/identity/secure/securetest"
	"github.com/portolan-mesh/portolan/xds/admin"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
)

// workload writes the certificate of a workload into files of its own.
func (s *secureServer) workload(t testing.TB, identity string, valid time.Duration) securetest.Files {
	t.Helper()
	return s.authority.Write(t, t.TempDir(), s.authority.Issue(t, securetest.Leaf{Identity: identity, Until: time.Now().Add(valid)}))
}

// plainEntry is a service that has a cluster at gateways and sidecars.
func plainEntry(name string) string {
	return fmt.Sprintf(`
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: %[1]s, namespace: shop}
spec:
  hosts: [%[1]s.shop.example]
  ports: [{number: 80, name: http, protocol: HTTP}]
  resolution: STATIC
  location: MESH_INTERNAL
  endpoints: [{address: 10.1.0.1}]
`, name)
}

// TestEnvoyOverMutualTLS: an Envoy with a certificate gets its configuration and a change. When
// its certificate expires, it reconnects with the renewed one and continues. It does the same
// when the server gets a renewed certificate. An Envoy with a certificate of another namespace
// is refused, and listed as such.
func TestEnvoyOverMutualTLS(t *testing.T) {
	t.Parallel()
	needEnvoy(t)
	for _, v := range []protocol.Variant{protocol.Delta, protocol.StateOfTheWorld} {
		t.Run(v.String(), func(t *testing.T) {
			t.Parallel()
			s := startSecureServer(t, serverOptions{})
			s.apply(plainEntry("first"))
			files := s.workload(t, webIdentity, 25*time.Second)
			client := s.startEnvoy(envoyOptions{kind: "sidecar", name: "web", xds: s.secureXDS, variant: v, tls: &files})
			client.awaitCluster("outbound|80||first.shop.example", true)
			s.apply(plainEntry("second"))
			client.awaitCluster("outbound|80||second.shop.example", true)

			// Both ends get renewed certificates.
			s.authority.Write(t, files.Dir, s.authority.Issue(t, securetest.Leaf{Identity: webIdentity}))
			s.authority.Write(t, s.files.Dir, s.issueServer(t))
			eventually(t, "the first certificate has expired", func() error {
				if !strings.Contains(s.process.output(), "closing a connection whose certificate or token has expired") {
					return errors.New("it has not")
				}
				return nil
			})
			s.apply(plainEntry("third"))
			client.awaitCluster("outbound|80||third.shop.example", true)
			client.expectNothingRejected()
			if log := s.process.output(); strings.Contains(log, "refusing a") {
				t.Errorf("somebody was refused:\n%s", log)
			}

			// This one claims another namespace.
			s.launchEnvoy(envoyOptions{kind: "sidecar", name: "thief", namespace: "bank", xds: s.secureXDS, variant: v, tls: &files})
			eventually(t, "the other is refused, and shown", func() error {
				var list admin.ProxyList
				if _, err := s.get(admin.ProxiesPath, &list); err != nil {
					return err
				}
				if len(list.Items) != 1 || len(list.Refused) != 1 || list.Refused[0].Identity != webIdentity || !strings.Contains(list.Refused[0].Node, "~thief.bank~") {
					return fmt.Errorf("%d proxies, refused %+v", len(list.Items), list.Refused)
				}
				return nil
			})
			if out := s.must("", "proxy", "status"); !strings.Contains(out, "refused") || !strings.Contains(out, `says that it is of the namespace "bank"`) {
				t.Errorf("proxy status: %s", out)
			}
		})
	}
}

// TestCertificatesThatAreRefused by the xDS port, with the reason in the log.
func TestCertificatesThatAreRefused(t *testing.T) {
	t.Parallel()
	needEnvoy(t)
	s := startSecureServer(t, serverOptions{})
	now := time.Now()
	foreign := securetest.New(t, "another")
	for name, c := range map[string]struct {
		by     *securetest.Authority
		leaf   securetest.Leaf
		logged string
	}{
		"expired":    {s.authority, securetest.Leaf{Identity: webIdentity, From: now.Add(-time.Hour), Until: now.Add(-time.Minute)}, "expired at "},
		"early":      {s.authority, securetest.Leaf{Identity: webIdentity, From: now.Add(time.Hour)}, "is not valid before "},
		"foreign":    {foreign, securetest.Leaf{Identity: webIdentity}, "is of no authority that this server trusts"},
		"serveronly": {s.authority, securetest.Leaf{Identity: webIdentity, Usages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}, "lacks clientAuth"},
		"nobody":     {s.authority, securetest.Leaf{Names: []string{"web"}}, "is of no workload"},
	} {
		files := c.by.Write(t, t.TempDir(), c.by.Issue(t, c.leaf))
		files.CA = s.files.CA
		s.launchEnvoy(envoyOptions{kind: "sidecar", name: name, xds: s.secureXDS, tls: &files})
		eventually(t, name+" is refused", func() error {
			if !strings.Contains(s.process.output(), c.logged) {
				return errors.New("it is not")
			}
			return nil
		})
	}
	if proxies, err := s.proxies(); err != nil || len(proxies) > 0 {
		t.Errorf("connected are %v, %v", proxies, err)
	}
}
