package virtualhost_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/portolan-mesh/portolan/xds/generate/route"
	"github.com/portolan-mesh/portolan/xds/generate/virtualhost"
	"github.com/portolan-mesh/portolan/xds/simulate"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// TestNamesOfServices: the names by which applications call a service, by the DNS domain
// of their proxy.
func TestNamesOfServices(t *testing.T) {
	t.Parallel()
	const long = "reviews.shop.svc.cluster.local"
	cluster := xdstest.HTTPService("shop/reviews", long, "10.7.0.1")
	campus := xdstest.HTTPService("campus", "foo.local.campus.net", "10.7.0.2")
	at := func(domain string) xdstest.Node { return xdstest.Node{Domain: domain} }
	shop, blog := at("shop.svc.cluster.local"), at("blog.svc.cluster.local")
	onto := func(name, h string) string {
		return xdstest.Object("VirtualService", name, "{hosts: ["+h+"], http: [{directResponse: {status: 418}}]}")
	}
	const to, pass, local = "outbound|80||" + long, "PassthroughCluster", "outbound|80||foo.local.campus.net"
	var tests []behaviour
	add := func(name string, node xdstest.Node, h, want string, mesh ...string) {
		tests = append(tests, behaviour{name: name + ": " + h, node: node, request: simulate.Request{Host: h}, want: want, mesh: mesh})
	}
	for _, h := range []string{long, long + ".", long + ":80", "reviews.shop", "reviews.shop.svc", "reviews", "REVIEWS"} {
		add("its namespace", shop, h, to, cluster)
	}
	for h, want := range map[string]string{long: to, "reviews.shop": to, "reviews.shop.svc": to, "reviews": pass, "reviews.shop.svc.cluster": pass} {
		add("another namespace", blog, h, want, cluster)
	}
	add("another domain", at("shop.svc.other.local"), "reviews.shop", pass, cluster)
	add("a domain of its own", at("example.org"), "reviews.shop", pass, cluster)
	add("no service of the domain", shop, "web", pass, web)
	add("a dot", shop, "web.example.com.", toWeb, web)
	add("a service of that name", shop, "reviews.shop", "outbound|80||reviews.shop", cluster, xdstest.HTTPService("short", "reviews.shop", "10.7.0.9"))
	add("a VirtualService of that name", shop, "reviews.shop", "418", cluster, onto("v", "reviews.shop"))
	add("both spellings", shop, "web.example.com.", toWeb, web, xdstest.HTTPService("dot", "web.example.com.", "10.7.0.9"))
	add("a VirtualService with a dot", shop, "web.example.com.", toWeb, web, onto("v", "web.example.com."))
	add("a pattern", at("example.com"), "*", pass, xdstest.HTTPService("wild", "*.example.com", "10.7.0.9"))
	for h, want := range map[string]string{"foo": local, "foo.local": pass} {
		add("a domain of no cluster", at("local.campus.net"), h, want, campus)
	}
	for h, want := range map[string]string{"foo": pass, "foo.local": local, "foo.local.campus": local} {
		add("another domain of no cluster", at("remote.campus.net"), h, want, campus)
	}
	add("two claims", at("local.campus.net"), "foo", local, xdstest.HTTPService("rival", "foo.campus.net", "10.7.0.3"), campus)
	add("one claim", at("local.campus.net"), "foo", "outbound|80||foo.campus.net", xdstest.HTTPService("rival", "foo.campus.net", "10.7.0.3"))
	run(t, tests)
}

// TestNamesAreUnique: no domain occurs twice, whatever the services and VirtualServices.
func TestNamesAreUnique(t *testing.T) {
	t.Parallel()
	hosts := []string{
		"a.shop.svc.cluster.local", "a.blog.svc.cluster.local", "a.shop", "a.shop.svc", "a.shop.svc.svc.cluster.local", "x.a.shop.svc.cluster.local",
		"a.shop.svc.cluster.local.", "a.local.net", "a.net", "b.a.net", "a.local", "a.local.net.", "*.shop.svc.cluster.local",
	}
	domains := []string{"shop.svc.cluster.local", "local.net", "a.local.net", "net"}
	rapid.Check(t, func(rt *rapid.T) {
		w := xdstest.NewWorld(t)
		for range rapid.IntRange(1, 6).Draw(rt, "changes") {
			i := rapid.IntRange(0, len(hosts)-1).Draw(rt, "host")
			if rapid.Bool().Draw(rt, "virtualService") {
				w.Apply(xdstest.Object("VirtualService", fmt.Sprint("v", i), "{hosts: ['"+hosts[i]+"'], http: [{directResponse: {status: 418}}]}"))
			} else {
				w.Apply(xdstest.HTTPService(fmt.Sprint("s", i), hosts[i], "10.1.0.1"))
			}
		}
		n := xdstest.Node{Domain: rapid.SampledFrom(domains).Draw(rt, "domain")}
		p, err := simulate.New(w.Build(n, route.Generator{}, virtualhost.Generator{}))
		if err != nil {
			rt.Fatal(err)
		}
		seen := map[string]string{}
		for _, v := range p.Route("80").GetVirtualHosts() {
			for _, d := range v.GetDomains() {
				if other, ok := seen[strings.ToLower(d)]; ok {
					rt.Errorf("%s is of %s and of %s", d, other, v.GetName())
				}
				seen[strings.ToLower(d)] = v.GetName()
			}
		}
	})
}

// A virtual host gives up a short name to the service with that name, and gets it back
// later.
func TestAShortNameYields(t *testing.T) {
	t.Parallel()
	w := xdstest.NewWorld(t, xdstest.HTTPService("reviews", "reviews.shop.svc.cluster.local", "10.7.0.1"))
	n := xdstest.Node{Domain: "shop.svc.cluster.local"}
	domains := func() []string {
		for _, v := range w.Simulate(n).Route("80").GetVirtualHosts() {
			if v.GetName() == "reviews.shop.svc.cluster.local:80" {
				return v.GetDomains()
			}
		}
		return nil
	}
	all := []string{"reviews.shop.svc.cluster.local", "reviews.shop.svc.cluster.local.", "reviews.shop", "reviews.shop.svc", "reviews"}
	if diff := cmp.Diff(all, domains()); diff != "" {
		t.Error(diff)
	}
	w.Apply(xdstest.HTTPService("other", "reviews.shop", "10.7.0.2"))
	if diff := cmp.Diff([]string{all[0], all[1], all[3], all[4]}, domains()); diff != "" {
		t.Error(diff)
	}
}
