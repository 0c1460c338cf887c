package admin_test

import (
	"errors"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/xds/admin"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// referenceWorld is a mesh with every kind of reference among objects.
func referenceWorld(t *testing.T) *xdstest.World {
	return xdstest.NewWorld(t,
		xdstest.Object("ServiceEntry", "shop/reviews", "{hosts: [reviews.shop.test], resolution: STATIC, location: MESH_INTERNAL, ports: [{number: 80, name: http, protocol: HTTP}], workloadSelector: {labels: {app: reviews}}}"),
		xdstest.Object("ServiceEntry", "shop/empty", "{hosts: [empty.shop.test], resolution: STATIC, location: MESH_INTERNAL, ports: [{number: 81, name: http, protocol: HTTP}], workloadSelector: {labels: {app: nobody}}}"),
		xdstest.Object("WorkloadEntry", "shop/vm-1", "{address: 10.0.0.1, labels: {app: reviews}}"),
		xdstest.Object("WorkloadEntry", "edge/vm-2", "{address: 10.0.0.2, labels: {app: reviews}}"),
		xdstest.Object("DestinationRule", "shop/reviews", "{host: REVIEWS.shop.test, subsets: [{name: v1, labels: {version: v1}}]}"),
		xdstest.Object("DestinationRule", "shop/all", "{host: '*.shop.test'}"),
		xdstest.Object("Gateway", "edge/main", "{selector: {app: edge}, servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: ['*']}]}"),
		xdstest.Object("VirtualService", "shop/leaf", "{http: [{route: [{destination: {host: reviews.shop.test}}]}]}"),
		xdstest.Object("VirtualService", "shop/front", `{hosts: [www.test], gateways: [edge/main, mesh], http: [
		  {match: [{uri: {prefix: /leaf}, gateways: [edge/main]}], delegate: {name: leaf}},
		  {route: [{destination: {host: reviews.shop.test, subset: v1}}], mirror: {host: short, subset: v9}}]}`),
		xdstest.Object("VirtualService", "shop/raw", "{hosts: [reviews.shop.test], gateways: [gone.edge], tcp: [{route: [{destination: {host: reviews.shop.test}}]}]}"),
	)
}

// references requests the references of an object and returns them as lines.
func references(t *testing.T, w admin.Source, kind, namespace, name string) (to, from []string) {
	t.Helper()
	query := fmt.Sprintf("?kind=%s&group=networking.istio.io&namespace=%s&name=%s", kind, namespace, name)
	value, err := admin.ServeReferences(w)(httptest.NewRequest("GET", admin.ReferencesPath+query, nil))
	if err != nil {
		t.Fatal(err)
	}
	got := value.(admin.References)
	lines := func(list []admin.Reference) (out []string) {
		for _, r := range list {
			line := r.Object + ": " + strings.Join(r.Fields, " ")
			if r.Missing {
				line = "no " + line
			}
			out = append(out, line)
		}
		return out
	}
	return lines(got.To), lines(got.From)
}

func TestReferences(t *testing.T) {
	t.Parallel()
	w := referenceWorld(t)
	for object, want := range map[string][2][]string{
		"VirtualService shop front": {{
			"gateway/edge/main: spec.gateways[0] spec.http[0].match[0].gateways[0]",
			"virtualservice/shop/leaf: spec.http[0].delegate",
			"service reviews.shop.test: spec.http[1].route[0].destination.host",
			"destinationrule/shop/reviews: spec.http[1].route[0].destination.subset",
			"no service short.shop.svc.cluster.local: spec.http[1].mirror.host",
			"no subset v9 of short.shop.svc.cluster.local: spec.http[1].mirror.subset",
		}, nil},
		"VirtualService shop leaf": {{"service reviews.shop.test: spec.http[0].route[0].destination.host"}, {"virtualservice/shop/front: spec.http[0].delegate"}},
		"VirtualService shop raw": {{
			"service reviews.shop.test: spec.hosts[0] spec.tcp[0].route[0].destination.host",
			"no gateway/edge/gone: spec.gateways[0]",
		}, nil},
		"Gateway edge main": {nil, {"virtualservice/shop/front: spec.gateways[0] spec.http[0].match[0].gateways[0]"}},
		"ServiceEntry shop reviews": {{"workloadentry/shop/vm-1: spec.workloadSelector"}, {
			"destinationrule/shop/all: spec.host", "destinationrule/shop/reviews: spec.host",
			"virtualservice/shop/front: spec.http[1].route[0].destination.host",
			"virtualservice/shop/leaf: spec.http[0].route[0].destination.host",
			"virtualservice/shop/raw: spec.hosts[0] spec.tcp[0].route[0].destination.host",
		}},
		"ServiceEntry shop empty":      {{"no workloads with app=nobody: spec.workloadSelector"}, {"destinationrule/shop/all: spec.host"}},
		"WorkloadEntry shop vm-1":      {nil, {"serviceentry/shop/reviews: spec.workloadSelector"}},
		"WorkloadEntry edge vm-2":      {nil, nil},
		"DestinationRule shop reviews": {{"service reviews.shop.test: spec.host"}, {"virtualservice/shop/front: spec.http[1].route[0].destination.subset"}},
		"DestinationRule shop all":     {{"service empty.shop.test: spec.host", "service reviews.shop.test: spec.host"}, nil},
	} {
		words := strings.Fields(object)
		to, from := references(t, w, words[0], words[1], words[2])
		if diff := cmp.Diff(want, [2][]string{to, from}); diff != "" {
			t.Errorf("%s (-want +got):\n%s", object, diff)
		}
	}
}

func TestReferencesOfNothing(t *testing.T) {
	t.Parallel()
	ask := func(w admin.Source, query string) error {
		_, err := admin.ServeReferences(w)(httptest.NewRequest("GET", admin.ReferencesPath+query, nil))
		return err
	}
	if err := ask(referenceWorld(t), "?kind=Gateway&group=networking.istio.io&namespace=edge&name=x"); !errors.Is(err, storage.ErrNotFound) {
		t.Errorf("an object that is not there: %v", err)
	}
	if err := ask(referenceWorld(t), ""); err == nil || !strings.Contains(err.Error(), "name=NAME") {
		t.Errorf("no object: %v", err)
	}
	if err := ask(world{}, "?kind=Gateway&name=x"); err == nil || !strings.Contains(err.Error(), "try again") {
		t.Errorf("nothing published: %v", err)
	}
}
