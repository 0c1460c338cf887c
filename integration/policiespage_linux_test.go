package integration

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
)

// TestSayWhoMayCallPage applies the objects of docs/tasks/say-who-may-call.md for a workload with a
// sidecar, and a client whose account is web. The dry run counts, and explain names the policy.
func TestSayWhoMayCallPage(t *testing.T) {
	policies := map[string]string{}
	for _, object := range pageObjects(t, "say-who-may-call.md", 5, strings.NewReplacer("app: ratings", "app: app")) {
		policies[regexp.MustCompile(`name: ([a-z-]+)`).FindStringSubmatch(object)[1]] = object
	}
	m := newPeerMesh(t, serverOptions{})
	m.apply("{apiVersion: security.istio.io/v1, kind: PeerAuthentication, metadata: {name: default, namespace: shop}, spec: {mtls: {mode: STRICT}}}")
	in, _ := m.sidecars(protocol.Delta, identified(t, m.of, shopAccounts+"app"), identified(t, m.of, shopAccounts+"web"))
	answers := func(path, want string) {
		t.Helper()
		eventually(t, path+" "+want, func() error {
			got, err := m.through(80, path)
			if err == nil && got.String() != want {
				err = errors.New("it answers " + got.String())
			}
			return err
		})
	}
	apply := func(name string) { t.Helper(); m.awaitSynced(m.apply(policies[name]), "app") }
	explains := func(path, want string) {
		t.Helper()
		if out := m.must("", "explain", "request", "--from", "client", "--to", "app.shop.test:80", "--path", path); !strings.Contains(out, want) {
			t.Errorf("explain %s does not say %q:\n%s", path, want, out)
		}
	}
	answers("/", "http")
	apply("allow-nothing")
	answers("/", "403")
	explains("/", "no rule of authorizationpolicy/shop/allow-nothing allows it")
	apply("metrics")
	answers("/metrics", "403")
	apply("ratings")
	answers("/", "http")
	answers("/admin", "http")
	apply("admin")
	for _, path := range []string{"/admin", "/admin/x", "/a/../admin", "/%61dmin"} {
		answers(path, "403")
	}
	answers("//admin", "http")
	answers("/administrator", "http")
	explains("/admin", "spec.rules[0] of authorizationpolicy/shop/admin denies it")

	apply("trial")
	answers("/", "http")
	m.awaitSynced(m.apply(strings.Replace(policies["trial"], "sa/web", "sa/other", 1)), "app")
	answers("/", "http")
	eventually(t, "the dry run counts", func() error {
		all, err := in.stats("")
		if err != nil {
			return err
		}
		for name, n := range all {
			if strings.HasSuffix(name, "istio_dry_run_allow_.shadow_denied") && n > 0 {
				return nil
			}
		}
		return fmt.Errorf("no statistic has counted what the dry run would refuse")
	})
	in.expectNothingRejected()
}
