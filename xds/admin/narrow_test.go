package admin

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/portolan-mesh/portolan/xds/admission"
	"github.com/portolan-mesh/portolan/xds/progress"
)

// TestProxiesOfANamespace: a narrowed list has only proxies of the namespace. The namespace is
// the one that a server recorded, else the one in the node id.
func TestProxiesOfANamespace(t *testing.T) {
	t.Parallel()
	const shop, bank = "sidecar~10.0.0.1~web.shop~shop.svc.cluster.local", "sidecar~10.0.0.2~vault.bank~bank.svc.cluster.local"
	l := ProxyList{
		Elsewhere: map[string]int{"cp-1": 2, "cp-2": 1},
		Items:     []progress.ProxyStatus{{Node: shop, Namespace: "shop"}, {Node: bank, Namespace: "bank"}, {Node: shop, Namespace: "moved"}},
		Refused:   []admission.Refusal{{Node: shop}, {Node: bank}, {Address: "10.0.0.3"}},
		Gone:      []progress.Place{{Node: shop}, {Node: bank}, {Node: bank, Namespace: "shop"}},
	}
	l.narrow("shop", []progress.Place{{Node: shop, Server: "cp-1"}, {Node: bank, Server: "cp-1"}, {Node: bank, Namespace: "shop", Server: "cp-2"}, {Node: shop}})
	want := ProxyList{
		Elsewhere: map[string]int{"cp-1": 1, "cp-2": 1},
		Items:     []progress.ProxyStatus{{Node: shop, Namespace: "shop"}},
		Refused:   []admission.Refusal{{Node: shop}},
		Gone:      []progress.Place{{Node: shop}, {Node: bank, Namespace: "shop"}},
	}
	if diff := cmp.Diff(want, l); diff != "" {
		t.Error(diff)
	}
}
