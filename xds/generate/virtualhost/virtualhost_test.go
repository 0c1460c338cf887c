package virtualhost_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/xds/generate"
	"github.com/portolan-mesh/portolan/xds/generate/virtualhost"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// names returns the names of a node's virtual hosts.
func names(t *testing.T, w *xdstest.World, n xdstest.Node) []string {
	t.Helper()
	var out []string
	for _, r := range w.Build(n, virtualhost.Generator{}) {
		out = append(out, r.Name)
	}
	return out
}

// A host names the clusters of all its routes, and belongs to the route configuration
// that its name begins with.
func TestNamesAndRefs(t *testing.T) {
	t.Parallel()
	w := xdstest.NewWorld(t, web, reviews, routes(
		"{match: [{uri: {prefix: /a}}], redirect: {uri: /b}}, "+
			"{route: [{destination: {host: web.example.com}, weight: 1}, {destination: {host: reviews.example.com, subset: v1}, weight: 2}]}"),
		xdstest.Object("Gateway", "gw", "{servers: [{port: {number: 8000, name: http, protocol: HTTP}, bind: 10.0.0.7, hosts: ['*']}]}"),
		xdstest.Object("VirtualService", "gw", "{hosts: ['*.example.com'], gateways: [gw], http: [{route: [{destination: {host: web.example.com}}]}]}"))
	for want, node := range map[string]xdstest.Node{
		"80/web.example.com:80":                 {},
		"http.8000.10.0.0.7/*.example.com:8000": {Type: discovery.Router},
	} {
		found := false
		for _, r := range w.Build(node, virtualhost.Generator{}) {
			if found = found || r.Name == want; r.Name != "80/web.example.com:80" {
				continue
			}
			if diff := cmp.Diff([]string{"outbound|80|v1|reviews.example.com", "outbound|80||web.example.com"}, slices.Collect(r.EachRef)); diff != "" {
				t.Error(diff)
			}
		}
		if !found {
			t.Errorf("there is no %s", want)
		}
	}
}

// A host is built from the rows that concern it. Another host that claims its domain
// makes it appear or disappear; other changes do not make it look again.
func TestHostsMakeWay(t *testing.T) {
	t.Parallel()
	const (
		foreign = "80/*.example.org:80"
		address = "80/10.9.0.1:80"
	)
	vip := xdstest.Object("ServiceEntry", "vip", "{hosts: [vip.example.com], addresses: [10.9.0.1], resolution: STATIC, ports: [{number: 80, name: http, protocol: HTTP}]}")
	service := xdstest.HTTPService("org", "a.b.example.org", "10.3.0.1")
	w := xdstest.NewWorld(t, web,
		xdstest.Object("VirtualService", "a", "{hosts: ['*.example.org', 10.9.0.1], http: [{route: [{destination: {host: web.example.com}}]}]}"))
	check := func(want ...string) {
		t.Helper()
		if diff := cmp.Diff(want, names(t, w, xdstest.Node{})); diff != "" {
			t.Error(diff)
		}
	}
	check(foreign, address, "80/web.example.com:80")
	w.Apply(service)
	check(address, "80/a.b.example.org:80", "80/web.example.com:80")
	w.Apply(vip)
	check("80/a.b.example.org:80", "80/vip.example.com:80", "80/web.example.com:80")
	w.Delete("serviceentry/default/org")
	w.Delete("serviceentry/default/vip")
	check(foreign, address, "80/web.example.com:80")
}

// A host reads as many rows in a large mesh as in a small one.
func TestReadsAreLocal(t *testing.T) {
	t.Parallel()
	reads := func(services int) int {
		documents := []string{web, routes("{route: [{destination: {host: web.example.com}}]}")}
		for i := range services {
			name := "s" + string(rune('a'+i%26)) + string(rune('a'+i/26))
			documents = append(documents, xdstest.HTTPService(name, name+".example.com", "10.3.0.1"))
		}
		v := xdstest.NewWorld(t, documents...).View(xdstest.Node{}).Recording()
		if r, err := generate.Build(virtualhost.Generator{}, v, "80/web.example.com:80"); err != nil || r == nil {
			t.Fatal(r, err)
		}
		for _, asked := range v.Dependencies() {
			if asked.Query.Row.Table == mesh.Ports {
				t.Errorf("it depends on all hosts: %v", asked.Query)
			}
		}
		return len(v.Dependencies())
	}
	if small, large := reads(1), reads(200); small != large {
		t.Errorf("%d reads among few services, %d among many", small, large)
	}
}
