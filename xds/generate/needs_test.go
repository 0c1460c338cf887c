package generate_test

import (
	"slices"
	"testing"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/secret"
	"github.com/portolan-mesh/portolan/xds/generate"
	"github.com/portolan-mesh/portolan/xds/generate/catalogue"
	"github.com/portolan-mesh/portolan/xds/resource"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// mayNeed says whether the catalogue lets resources of a type have a need. Delivery ignores any
// other.
func mayNeed(typeURL string, need resource.Need) bool {
	return slices.ContainsFunc(catalogue.Types(), func(t generate.ResourceType) bool {
		return t.Generator.TypeURL() == typeURL && slices.Contains(t.Needs, resource.Need{TypeURL: need.TypeURL, Kind: need.Kind})
	})
}

// TestGeneratorsKnowTheNeeds: generators list the needs that their messages have, and the catalogue
// knows each.
func TestGeneratorsKnowTheNeeds(t *testing.T) {
	t.Parallel()
	w := xdstest.NewWorld(t)
	w.Put(exampleObjects(t)...)
	w.SetMesh(reporters)
	for _, name := range []string{"www", "www-rsa"} {
		w.PutSecret("edge/"+name, secret.TLSCert, secret.TLSKey)
	}
	w.PutSecret("edge/clients", secret.Authority)
	kinds := map[resource.NeedKind]int{}
	for _, n := range []xdstest.Node{
		{Namespace: "shop", Labels: map[string]string{"app": "productpage"}, SelfDiscovery: true, RouteDelta: true},
		{Namespace: "shop", IP: "192.0.2.6", Labels: map[string]string{"app": "reviews"}, Interception: discovery.InterceptionRedirect, Certified: true},
		{Namespace: "shop", IP: "192.0.2.4", Labels: map[string]string{"app": "front"}},
		{Namespace: "shop", IP: "192.0.2.5", Type: discovery.Proxyless},
		{Namespace: "edge", IP: "192.0.2.10", Type: discovery.Router, Labels: map[string]string{"istio": "ingressgateway"}, RouteDelta: true},
	} {
		for _, r := range w.Build(n, generate.For(catalogue.Types(), n.Proxy(t).Type)...) {
			message, err := r.Body.UnmarshalNew()
			if err != nil {
				t.Fatal(err)
			}
			got, err := resource.NeedsOf(message)
			if err != nil {
				t.Fatal(err)
			}
			listed := slices.DeleteFunc(resource.Ordered(slices.Collect(r.EachNeed)), func(need resource.Need) bool {
				return need.Kind == resource.Within && !slices.Contains(got, need) // a gateway's routes that have no virtual host yet ask for none
			})
			if !slices.Equal(listed, got) {
				t.Errorf("%s of %s %s lists the needs %v, and its message has %v", r.Name, n.Type, n.IP, listed, got)
			}
			for _, need := range got {
				if kinds[need.Kind]++; !mayNeed(r.Body.GetTypeUrl(), need) {
					t.Errorf("the catalogue does not say that resources such as %s may have the need %v", r.Name, need)
				}
			}
		}
	}
	for _, kind := range []resource.NeedKind{resource.Warm, resource.Covered, resource.Once, resource.Traffic, resource.Within, resource.Grace} {
		if kinds[kind] == 0 {
			t.Errorf("no resource has a need of kind %d", kind)
		}
	}
}
