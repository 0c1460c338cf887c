package desired_test

import (
	"testing"

	"github.com/portolan-mesh/portolan/xds/generate/catalogue"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// TestConsentBringsSubsets: a HostGrant lets a rule of a pattern count for a host of another
// namespace, though neither changes. The clusters of its subsets come and go with the grant.
func TestConsentBringsSubsets(t *testing.T) {
	t.Parallel()
	const grant = "hostgrant/edge/z"
	w := xdstest.NewWorld(t,
		xdstest.HTTPService("edge/a", "a.shop.example", "10.1.0.1"),
		xdstest.Object("DestinationRule", "shop/z", "{host: '*.shop.example', subsets: [{name: z, labels: {v: z}}]}"))
	w.SetHostConsent(true)
	m := xdstest.NewGroups(catalogue.Types(), w.Context).Join(xdstest.Node{Namespace: "shop"}.Proxy(t))
	defer m.Close()
	has := func() bool {
		t.Helper()
		m.Follow()
		_, ok := m.Versions()["CDS outbound|80|z|a.shop.example"]
		want, err := m.Walked()
		if _, walked := want["CDS outbound|80|z|a.shop.example"]; err != nil || walked != ok {
			t.Errorf("the member has the subset: %v, a build of everything: %v, %v", ok, walked, err)
		}
		return ok
	}
	if has() {
		t.Error("the subset is there without consent")
	}
	w.Apply(xdstest.Object("HostGrant", "edge/z", "{from: [{kind: DestinationRule, namespace: shop}], to: [{hosts: ['*.shop.example']}]}"))
	if !has() {
		t.Error("the subset is missing with consent")
	}
	w.Delete(grant)
	if has() {
		t.Error("the subset stays without consent")
	}
}
