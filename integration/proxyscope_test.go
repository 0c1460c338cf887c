package integration

import (
	"fmt"
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// TestProxiesOfANamespace: a user with rights in one namespace can see its proxies, and a
// refusal says how. Other proxies stay invisible.
func TestProxiesOfANamespace(t *testing.T) {
	t.Parallel()
	s := startServer(t, serverOptions{})
	s.must("", "user", "create", "root", "--role", "admin")
	bob := strings.TrimSpace(s.must("", "user", "create", "bob", "--role", "editor", "-n", "shop"))
	for name, namespace := range map[string]string{"web": "shop", "vault": "bank"} {
		client := xdstest.Dial(t, s.xds, xdstest.ClientOptions{Variant: protocol.Delta, Node: xdstest.NewNode("sidecar", "10.0.0.1", name, namespace, nil)})
		client.Subscribe(xdstest.ClusterType)
	}
	eventually(t, "both proxies are there", func() error {
		if out := s.must("", "proxy", "status"); !strings.Contains(out, "web") || !strings.Contains(out, "vault") {
			return fmt.Errorf("%s", out)
		}
		return nil
	})
	for line, want := range map[string]struct {
		code     int
		says     string
		unspoken string
	}{
		"proxy status -n shop":               {0, "web", "vault"},
		"proxy status -n shop -o json":       {0, `"web"`, "vault"},
		"proxy status -n shop vault":         {0, "No proxy of namespace shop whose node id contains \"vault\" is connected", ""},
		"proxy status":                       {77, `user "bob" may not get proxies in all namespaces`, "web"},
		"proxy status -A":                    {77, "-n NAMESPACE asks about the proxies of one namespace alone", "web"},
		"proxy status -n bank":               {77, `user "bob" may not get proxies in namespace bank`, "NAMESPACE"},
		"proxy status -A -n shop":            {64, "leave one of them out", ""},
		"proxy config cluster web -n shop":   {0, "", "vault"},
		"proxy config cluster vault -n shop": {1, "no proxy in namespace shop is called vault", ""},
		"proxy config cluster vault -n bank": {77, `user "bob" may not get proxyconfig in namespace bank`, ""},
		"proxy config all web":               {77, "-n NAMESPACE asks about the proxies of one namespace alone", ""},
		"proxy diff web -n shop":             {0, "", "vault"},
		"proxy diff web":                     {77, "-n NAMESPACE", ""},
	} {
		out := s.try("", append(strings.Fields(line), "--token", bob)...)
		all := out.stdout + out.stderr
		if out.code != want.code || !strings.Contains(all, want.says) || want.unspoken != "" && strings.Contains(all, want.unspoken) {
			t.Errorf("%s: exit code %d: %s", line, out.code, all)
		}
	}
}
