package objects

import (
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/cmd/portolan/clitest"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/resttest"
	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/xds/admin/effect"
)

func TestConcernedProxies(t *testing.T) {
	t.Parallel()
	nodes := func(n int) (out []string) {
		for i := range n {
			out = append(out, "sidecar~10.0.0.1~"+string(rune('a'+i))+".shop~shop.svc.cluster.local")
		}
		return out
	}
	for want, given := range map[string]effect.Effect{
		"No proxy is concerned, of 0 connected.":     {},
		"No proxy is concerned, of 5 connected.":     {Proxies: 5},
		"Concerned: 2 of 5 proxies: a.shop, b.shop.": {Proxies: 5, Concerned: 2, Nodes: nodes(2)},
		"Concerned: 1 of 1 proxies: a.shop. Modes of shop,bank change in phases: this is the difference after the last.": {Proxies: 1, Concerned: 1, Nodes: nodes(1), Phases: []string{"shop", "bank"}},
		"Concerned: 1 of 1 proxies: odd.": {Proxies: 1, Concerned: 1, Nodes: []string{"odd"}},
		"Concerned: 1 of 1 proxies: a.shop. Other servers have 3 more, which were not looked at.":                                      {Proxies: 1, Concerned: 1, Nodes: nodes(1), Elsewhere: 3},
		"Concerned: 200 of 300 proxies: a.shop, b.shop, c.shop, d.shop, e.shop, f.shop, g.shop, h.shop, i.shop, j.shop, and 190 more.": {Proxies: 300, Concerned: 200, Nodes: nodes(20)},
	} {
		if got := affectedProxies(given); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// foretold is a previewer that always gives the same answer.
type foretold struct{}

func (foretold) Preview(_ []storage.Op, what effect.Preview) (effect.Effect, bool) {
	given := effect.Effect{Proxies: 2, Concerned: 1, Nodes: []string{"sidecar~10.0.0.1~a.shop~shop.svc.cluster.local"}}
	if what == effect.PreviewProxies {
		return given, true
	}
	given.Resources = []effect.ResourceChange{
		{Type: "CDS", Name: "outbound|80||x", Change: effect.Changed, Proxies: 1},
		{Type: "EDS", Name: "outbound|80||x", Change: effect.Removed, Proxies: 2},
	}
	if what == effect.PreviewBodies {
		given.Resources[0].Before, given.Resources[0].After = []byte(`{"name":"x","n":1}`), []byte(`{"name":"x","n":2}`)
		given.Resources[1].Before = []byte(`{"name":"x"}`)
	} else {
		given.Omitted = 7
	}
	return given, true
}

// TestDryRunShowsItsEffect: the output shows how objects differ, which proxies are concerned
// and, with --xds, which resources.
func TestDryRunShowsItsEffect(t *testing.T) {
	t.Parallel()
	a := line.On(resttest.Start(t, 0, func(o *rest.Options) { o.Previewer = foretold{} }))
	a.Must(t, clitest.Entry("a", ""), "apply", "-f", "-")
	changed := strings.Replace(clitest.Entry("a", ""), "10.0.0.1", "10.0.0.2", 1)
	const difference = `serviceentry/default/a  configured (dry run)
--- serviceentry/default/a
+++ serviceentry/default/a
@@ -5,7 +5,7 @@
   namespace: default
 spec:
   endpoints:
-  - address: 10.0.0.1
+  - address: 10.0.0.2
   hosts:
   - a.shop
   location: MESH_INTERNAL
`
	const who = "Concerned: 1 of 2 proxies: a.shop.\n"
	clitest.Same(t, "proxies", a.Must(t, changed, "apply", "-f", "-", "--dry-run=server"), difference+who)
	clitest.Same(t, "resources", a.Must(t, changed, "apply", "-f", "-", "--dry-run=server", "--xds"), difference+who+
		"  CDS  outbound|80||x  changed  1 proxy\n  EDS  outbound|80||x  removed  2 proxies\n  and 7 more\n")
	clitest.Same(t, "bodies", a.Must(t, changed, "apply", "-f", "-", "--dry-run=server", "--xds=diff"), difference+who+
		"  CDS  outbound|80||x  changed  1 proxy\n  EDS  outbound|80||x  removed  2 proxies\n"+
		"--- CDS outbound|80||x\n+++ CDS outbound|80||x\n@@ -1,2 +1,2 @@\n-\"n\": 1\n+\"n\": 2\n name: x\n"+
		"--- EDS outbound|80||x\n+++ /dev/null\n@@ -1 +0,0 @@\n-name: x\n")
	if out := a.Must(t, changed, "apply", "-f", "-", "--dry-run=server", "--xds", "-o", "json"); !strings.Contains(out, `"concerned": 1`) || !strings.Contains(out, `"type": "CDS"`) || !strings.Contains(out, `"before": {`) {
		t.Errorf("as JSON: %s", out)
	}
	a.Must(t, changed, "apply", "-f", "-")
	for _, command := range [][]string{
		{"delete", "se/a", "--dry-run=server"}, {"rollback", "se/a", "--to-revision", "2", "--dry-run=server"},
	} {
		if out := a.Must(t, "", command...); !strings.Contains(out, "\n-  - address: 10.0.0.2\n") || !strings.HasSuffix(out, who) {
			t.Errorf("%v: %s", command, out)
		}
	}
	exported := a.Must(t, "", "export")
	if out := a.Must(t, strings.Replace(exported, "10.0.0.2", "10.0.0.3", 1), "import", "-f", "-", "--dry-run=server"); !strings.Contains(out, "\n+  - address: 10.0.0.3\n") || !strings.HasSuffix(out, who) {
		t.Errorf("import: %s", out)
	}
}

// TestForeseenCalls: a dry run names whom policies select, and the calls that they newly refuse.
func TestForeseenCalls(t *testing.T) {
	t.Parallel()
	deny := effect.Policy{Policy: "authorizationpolicy/shop/deny", Workloads: 2, Nodes: []string{"sidecar~10.0.0.1~a.shop~shop", "sidecar~10.0.0.2~b.shop~shop"}}
	for want, given := range map[string]effect.Effect{
		"": {},
		"authorizationpolicy/shop/deny selects 2 connected workloads: a.shop, b.shop.|No call would newly be refused, of 7 foreseen calls.":                               {Policies: []effect.Policy{deny}, Calls: &effect.Calls{Foreseen: 7}},
		"authorizationpolicy/shop/deny selects 2 connected workloads: a.shop, b.shop.|No call to these workloads is foreseen: this says nothing of who would be refused.": {Policies: []effect.Policy{deny}, Calls: &effect.Calls{}},
		"authorizationpolicy/shop/x selects 0 connected workloads.|No call would newly be refused, of 0 foreseen calls.":                                                  {Policies: []effect.Policy{{Policy: "authorizationpolicy/shop/x"}}, Calls: &effect.Calls{}},
		"authorizationpolicy/shop/deny selects 2 connected workloads: a.shop, b.shop.|Newly refused: 12 of the first 2000 foreseen calls: c.shop to a.test:80 at a.shop GET /, and 11 more.": {
			Policies: []effect.Policy{deny}, Calls: &effect.Calls{Foreseen: 2000, More: true, Refused: 12, First: []string{"c.shop to a.test:80 at a.shop GET /"}},
		},
	} {
		if got := strings.Join(affectedCalls(given), "|"); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
