package admin_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/discovery/rows"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/health"
	"github.com/portolan-mesh/portolan/storage/host"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/xds/admin"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/verdict/finding"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// world is a server that has published a context, or none if it is nil.
type world struct{ push *mesh.PushContext }

func (w world) Context() *mesh.PushContext { return w.push }

const reviews = host.Name("reviews.shop")

// shop is a mesh in which two registries know one host.
func shop(t *testing.T) world {
	t.Helper()
	declared := &discovery.Service{
		Hostname: reviews, Address: "10.9.0.1", Ports: []discovery.Port{{Name: "http", Number: 80, Protocol: discovery.HTTP}, {Name: "tcp", Number: 81, Protocol: discovery.TCP}},
		Attributes: discovery.Attributes{
			Provider: discovery.External, Name: "reviews", Namespace: "shop",
			LabelSelectors: map[string]string{"app": "reviews"}, ExportTo: discovery.Visibility{"shop"},
		},
	}
	found := &discovery.Service{
		Hostname: reviews, Address: discovery.UnspecifiedIP, Ports: declared.Ports[:1],
		Attributes: discovery.Attributes{Provider: discovery.Consul, Name: "reviews", Namespace: "shop"},
	}
	at := func(address, name string, port int, version string, h discovery.Health) *discovery.Endpoint {
		return &discovery.Endpoint{
			Address: address, ServicePortName: name, Port: port, Labels: map[string]string{"version": version}, Weight: 1, Health: h,
			Locality: discovery.Locality{Label: "eu/a"}, Namespace: "shop", WorkloadName: "w-" + version,
		}
	}
	endpoints := []*discovery.Endpoint{
		at("10.0.0.9", "http", 9080, "v1", discovery.Unhealthy),
		at("10.0.0.1", "http", 8080, "v1", discovery.Healthy), at("10.0.0.1", "tcp", 8081, "v1", discovery.Healthy),
		at("10.0.0.2", "http", 8080, "v2", discovery.Draining),
	}
	key := rows.Key(reviews, "shop")
	return world{mesh.New(mesh.Inputs{
		Configs:  objects(t),
		Services: pmap.Map[*mesh.ServiceRow]{}.Set(key, rows.NewService([]*discovery.Service{declared, found}, endpoints)),
		Endpoints: pmap.Map[*mesh.EndpointRow]{}.Set(key, &mesh.EndpointRow{
			Hostname: reviews, Namespace: "shop", Endpoints: endpoints,
			Shards: []rows.ShardSize{{Shard: discovery.ShardKey{Provider: discovery.Consul, Cluster: "dc1"}, Count: 1}, {Shard: discovery.ShardKey{Provider: discovery.External}, Count: 3}},
		}),
	})}
}

// objects are two rules for the host, one of them by a pattern, and workloads that are left
// out.
func objects(t *testing.T) *cache.Snapshot {
	t.Helper()
	entry := func(name, labels string) *config.Config {
		c := xdstest.Objects(t, xdstest.Object("WorkloadEntry", "shop/"+name, "{address: 10.0.0.7, locality: eu/b, labels: {"+labels+"}}"))[0]
		c.UID, c.Annotations = name, map[string]string{health.ChecksAnnotation: "true"}
		return c
	}
	all := xdstest.Objects(t,
		xdstest.Object("DestinationRule", "shop/reviews", "{host: reviews.shop, subsets: [{name: v1, labels: {version: v1}}, {name: v2, labels: {version: v2}}, {name: v3, labels: {version: v3}}]}"),
		xdstest.Object("DestinationRule", "shop/wide", "{host: '*.shop', subsets: [{name: hidden}]}"),
		xdstest.Object("DestinationRule", "client/mine", "{host: '*.shop', subsets: [{name: all}]}"))
	all = append(all, entry("silent", "app: reviews"), entry("failed", "app: reviews"), entry("other", "app: other"), entry("w-v1", "app: reviews"))
	content := cache.Content{}
	for _, c := range all {
		content.Configs = content.Configs.Set(c.Key().Path(), c)
	}
	failed := &health.Report{Namespace: "shop", Name: "failed", UID: "failed", Message: "503"}
	content.Health = content.Health.Set(failed.Path(), failed)
	return (*cache.Snapshot)(nil).Next(42, content)
}

func get(t *testing.T, s admin.Source, query string) (admin.ServiceList, error) {
	t.Helper()
	value, err := admin.Services(s, admin.Registries{})(httptest.NewRequest(http.MethodGet, admin.ServicesPath+query, nil))
	if err != nil {
		return admin.ServiceList{}, err
	}
	return value.(admin.ServiceList), nil
}

func TestAServiceIsDescribedByItsRows(t *testing.T) {
	t.Parallel()
	list, err := get(t, shop(t), "?host=Reviews.shop&namespace=shop")
	if err != nil || len(list.Items) != 1 || list.Revision != 42 {
		t.Fatalf("%+v, %v", list, err)
	}
	s := list.Items[0]
	var got []string
	for _, d := range s.Definitions {
		got = append(got, fmt.Sprintf("service %s %s %q %v %v", d.Registry, d.Name, d.Address, d.Ports, d.ExportTo))
	}
	for _, e := range s.Endpoints {
		got = append(got, fmt.Sprintf("endpoint %s/%s %s %v %s %s %s %s %v", e.Registry, e.Cluster, e.Address, e.Ports, e.Locality, e.Health, e.Reason, e.Workload, e.Subsets))
	}
	for _, x := range s.Subsets {
		got = append(got, fmt.Sprintf("subset %s of %s for %s %v: %d, %d healthy", x.Name, x.Rule, x.Host, x.Labels, x.Endpoints, x.Healthy))
	}
	want := []string{
		`service Consul reviews "" [{http 80 HTTP  false }] [*]`,
		`service External reviews "10.9.0.1" [{http 80 HTTP  false } {tcp 81 TCP  false }] [shop]`,
		"endpoint Consul/dc1 10.0.0.9 [{http 9080  PERMISSIVE false }] eu/a UNHEALTHY  shop/w-v1 [{v1 shop/reviews} {all client/mine}]",
		"endpoint External/ 10.0.0.1 [{http 8080  PERMISSIVE false } {tcp 8081  PERMISSIVE false }] eu/a HEALTHY  shop/w-v1 [{v1 shop/reviews} {all client/mine}]",
		"endpoint External/ 10.0.0.2 [{http 8080  PERMISSIVE false }] eu/a DRAINING  shop/w-v2 [{v2 shop/reviews} {all client/mine}]",
		"endpoint External/ 10.0.0.7 [] eu/b LEFT OUT 503 shop/failed []",
		"endpoint External/ 10.0.0.7 [] eu/b LEFT OUT no report shop/silent []",
		"subset v1 of shop/reviews for reviews.shop map[version:v1]: 2, 1 healthy",
		"subset v2 of shop/reviews for reviews.shop map[version:v2]: 1, 0 healthy",
		"subset v3 of shop/reviews for reviews.shop map[version:v3]: 0, 0 healthy",
		"subset all of client/mine for *.shop map[]: 3, 1 healthy",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestAnUnknownHostIsToldWithSimilarOnes(t *testing.T) {
	t.Parallel()
	for query, similar := range map[string]string{
		"?host=review": "reviews.shop", "?host=reviews.bank": "reviews.shop", "?host=ratings.shop": "", "?host=reviews.shop&namespace=bank": "",
	} {
		list, err := get(t, shop(t), query)
		if err != nil || len(list.Items) != 0 || strings.Join(list.Similar, ",") != similar {
			t.Errorf("%s: %+v, %v", query, list, err)
		}
	}
}

func TestWhatCannotBeDescribed(t *testing.T) {
	t.Parallel()
	if _, err := get(t, world{}, "?host=a"); err == nil || !strings.Contains(err.Error(), "try again") {
		t.Errorf("nothing published: %v", err)
	}
}

// TestServicesAreListed: without a host all services are listed, with registries and numbers of
// endpoints.
func TestServicesAreListed(t *testing.T) {
	t.Parallel()
	ask := func(query string) admin.ServiceNames {
		value, err := admin.Services(shop(t), admin.Registries{})(httptest.NewRequest(http.MethodGet, admin.ServicesPath+query, nil))
		if err != nil {
			t.Fatal(err)
		}
		return value.(admin.ServiceNames)
	}
	want := []admin.ServiceName{{
		Hostname: string(reviews), Namespace: "shop", Registries: []string{"Consul", "External"}, Endpoints: 3, Healthy: 1,
		Ports: []admin.Port{{Name: "http", Number: 80, Protocol: "HTTP"}},
	}}
	if d := cmp.Diff(want, ask("?namespace=shop").Items); d != "" {
		t.Error(d)
	}
	if list := ask("?namespace=other"); list.Kind != "ServiceNames" || len(list.Items) != 0 {
		t.Errorf("of another namespace: %+v", list)
	}
}

// TestAliasesAreDescribed: an alias says what it stands for, and its service says which aliases it has.
func TestAliasesAreDescribed(t *testing.T) {
	t.Parallel()
	w := xdstest.NewWorld(t, xdstest.HTTPService("shop/web", "web.example.com", "10.7.0.1"))
	for h, of := range map[host.Name]host.Name{"a.shop": "b.shop", "b.shop": "web.example.com", "c.shop": "c.shop", "d.shop": "elsewhere.example"} {
		w.Offer(discovery.Row{Hostname: h, Namespace: "shop", Services: []*discovery.Service{{
			Hostname: h, Address: discovery.UnspecifiedIP, Resolution: discovery.DNSLB, MeshExternal: true,
			Attributes: discovery.Attributes{Provider: discovery.Kubernetes, Namespace: "shop", ExternalName: of},
		}}})
	}
	got := map[string]string{}
	for _, h := range []string{"a.shop", "b.shop", "c.shop", "d.shop", "web.example.com"} {
		list, err := get(t, world{w.Context()}, "?host="+h)
		if err != nil || len(list.Items) != 1 {
			t.Fatalf("%s: %+v, %v", h, list, err)
		}
		got[h] = fmt.Sprint(list.Items[0].AliasOf, list.Items[0].Aliases, list.Items[0].Definitions[0].ExternalName)
	}
	want := map[string]string{
		"a.shop": "web.example.com[]b.shop", "b.shop": "web.example.com[]web.example.com", "c.shop": "c.shop[]c.shop",
		"d.shop": "[]elsewhere.example", "web.example.com": "[a.shop b.shop]",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	names, err := admin.Services(world{w.Context()}, admin.Registries{})(httptest.NewRequest(http.MethodGet, admin.ServicesPath, nil))
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range names.(admin.ServiceNames).Items {
		if before, _, _ := strings.Cut(want[s.Hostname], "["); s.AliasOf != before {
			t.Errorf("the list has %s as an alias of %q, want %q", s.Hostname, s.AliasOf, before)
		}
	}
}

// TestPlacesOfServices: definitions show their places if they have some, and services what is odd
// about their endpoints.
func TestPlacesOfServices(t *testing.T) {
	t.Parallel()
	places := func(s *discovery.Service) []string {
		if s.Attributes.Provider == discovery.Consul {
			return []string{"dc1"}
		}
		return nil
	}
	clusters := func(row []*discovery.Service) []string { return []string{"", "east"} }
	findings := func(s *mesh.ServiceRow) []finding.Finding {
		return []finding.Finding{{Code: "PTL0364", Message: string(s.Hostname)}}
	}
	value, err := admin.Services(shop(t), admin.Registries{Clusters: clusters, Places: places, Findings: findings})(httptest.NewRequest(http.MethodGet, admin.ServicesPath+"?host=reviews.shop", nil))
	if err != nil {
		t.Fatal(err)
	}
	item := value.(admin.ServiceList).Items[0]
	if of := item.Definitions; !slices.Equal(of[0].Places, []string{"dc1"}) || !slices.Equal(of[1].Places, []string{"cluster east: Service shop/" + of[1].Name}) {
		t.Errorf("%+v", of)
	}
	value, err = admin.Services(shop(t), admin.Registries{Clusters: clusters})(httptest.NewRequest(http.MethodGet, admin.ServicesPath, nil))
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range value.(admin.ServiceNames).Items {
		if !slices.Equal(one.Clusters, []string{"east"}) {
			t.Errorf("%s is of the clusters %v", one.Hostname, one.Clusters)
		}
	}
	if len(item.Findings) != 1 || item.Findings[0].Message != string(reviews) {
		t.Errorf("%+v", item.Findings)
	}
}

// TestServicesTellOfMutualTLS: each port of an endpoint says whether it takes mutual TLS, and which
// policy says so.
func TestServicesTellOfMutualTLS(t *testing.T) {
	t.Parallel()
	w := xdstest.NewWorld(t, `
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: app, namespace: shop}
spec:
  hosts: [app.test]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{number: 80, name: http, protocol: HTTP}, {number: 81, name: check, protocol: HTTP}]
  endpoints:
  - {address: 10.0.0.1, serviceAccount: app, labels: {app: app}}
  - {address: 10.0.0.2, serviceAccount: app}
  - {address: 10.0.0.3}
---
apiVersion: security.istio.io/v1
kind: PeerAuthentication
metadata: {name: app, namespace: shop}
spec: {selector: {matchLabels: {app: app}}, mtls: {mode: STRICT}, portLevelMtls: {81: {mode: DISABLE}}}
`)
	w.Apply(xdstest.Object("ServiceEntry", "shop/far", "{hosts: [far.test], location: MESH_EXTERNAL, resolution: STATIC, ports: [{number: 80, name: http, protocol: HTTP}], endpoints: [{address: 10.0.0.4}]}"))
	if far, err := get(t, world{w.Context()}, "?host=far.test"); err != nil || far.Items[0].Endpoints[0].Ports[0].MTLS != "" {
		t.Errorf("outside the mesh: %+v, %v", far, err)
	}
	list, err := get(t, world{w.Context()}, "?host=app.test")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range list.Items[0].Endpoints {
		for _, p := range e.Ports {
			got = append(got, fmt.Sprintf("%s %s %q %q %v", e.Address, p.Name, p.MTLS, p.MTLSFrom, p.Labelled))
		}
	}
	if diff := cmp.Diff([]string{
		`10.0.0.1 http "STRICT" "shop/app" true`, `10.0.0.1 check "DISABLE" "shop/app" true`,
		`10.0.0.2 http "PERMISSIVE" "" true`, `10.0.0.2 check "PERMISSIVE" "" true`,
		`10.0.0.3 http "PERMISSIVE" "" false`, `10.0.0.3 check "PERMISSIVE" "" false`,
	}, got); diff != "" {
		t.Errorf("expected - and found +:\n%s", diff)
	}
}
