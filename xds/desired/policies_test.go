package desired_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/xds/generate/catalogue"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// TestAPolicyReachesWhoSharesAFilter: workloads of two namespaces share the filters that no policy
// fills. What fills one of them in one namespace reaches the workload there, and not the other.
func TestAPolicyReachesWhoSharesAFilter(t *testing.T) {
	t.Parallel()
	for _, change := range []string{
		xdstest.Object("AuthorizationPolicy", "bank/deny", "{action: DENY, rules: [{}]}"),
		xdstest.Object("RequestAuthentication", "bank/tokens", `{jwtRules: [{issuer: a, jwks: '{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"1","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}'}]}`),
		xdstest.Object("WorkloadEntry", "bank/web", "{address: 10.0.0.2, labels: {app: web, tier: back}}"),
	} {
		w := xdstest.NewWorld(t, xdstest.Object("AuthorizationPolicy", "bank/back", "{selector: {matchLabels: {tier: back}}, action: DENY, rules: [{}]}"))
		groups := xdstest.NewGroups(catalogue.Types(), w.Context)
		var members []xdstest.Member
		for _, n := range []xdstest.Node{{Namespace: "shop", IP: "10.0.0.1", Interception: discovery.InterceptionRedirect}, {Namespace: "bank", IP: "10.0.0.2", Interception: discovery.InterceptionRedirect}} {
			w.Apply(xdstest.Object("ServiceEntry", n.Namespace+"/web", "{hosts: [web."+n.Namespace+".test], ports: [{number: 80, name: http, protocol: HTTP}], resolution: STATIC, workloadSelector: {labels: {app: web}}}"),
				xdstest.Object("WorkloadEntry", n.Namespace+"/web", "{address: "+n.IP+", labels: {app: web}}"))
			members = append(members, groups.Join(n.Proxy(t)))
			defer members[len(members)-1].Close()
		}
		filters := func(i int) map[string]string {
			members[i].Follow()
			out := map[string]string{}
			for name, r := range members[i].Set("ECDS").All() {
				out[name] = r.Version
			}
			return out
		}
		shop, bank := filters(0), filters(1)
		if diff := cmp.Diff(shop, bank); diff != "" || len(shop) == 0 {
			t.Fatalf("filters that nothing fills differ (-shop +bank):\n%s", diff)
		}
		w.Apply(change)
		if diff := cmp.Diff(shop, filters(0)); diff != "" {
			t.Errorf("%s: the workload of another namespace has other filters (-before +after):\n%s", change, diff)
		}
		if cmp.Equal(bank, filters(1)) {
			t.Errorf("%s: the workload has the filters of before", change)
		}
	}
}
