package proxies

import (
	"net/http"
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/cmd/portolan/clitest"
	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
	"github.com/portolan-mesh/portolan/xds/explain"
)

// TestDNSResolve: an answer is a fact in each row, and what the user asks goes to the server.
func TestDNSResolve(t *testing.T) {
	t.Parallel()
	var asked string
	resolve := func(r explain.Resolution, args ...string) clitest.Outcome {
		t.Helper()
		o, err := serving(t, func(request *http.Request) any {
			asked = request.Method + " " + request.URL.RequestURI()
			return r
		}, append([]string{"dns", "resolve"}, args...)...)
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	o := resolve(explain.Resolution{
		Proxy: explain.Proxy{Name: "vm-12.shop", Namespace: "shop", Connected: true}, Name: "reviews", Host: "reviews.shop.svc.cluster.local", Namespace: "shop", Registry: "External",
		Objects: []string{"serviceentry/shop/reviews"}, Addresses: []string{"240.240.0.1", "2001:db8::1"}, From: explain.AssignedAddresses, Warning: "nobody answers",
	}, "reviews", "--from", "vm-12")
	clitest.Same(t, "of the mesh", o.Out, `asks     vm-12.shop that is connected
name     reviews
host     reviews.shop.svc.cluster.local
service  namespace shop, of the registry External
objects  serviceentry/shop/reviews
A        240.240.0.1
AAAA     2001:db8::1
from     addresses are given by Portolan, as it has none of its own
`)
	clitest.Same(t, "the warning", o.Err, "Warning: nobody answers\n")
	clitest.Same(t, "asked", asked, "GET "+explain.ResolvePath+"?from=vm-12&host=reviews")
	unknown := explain.Resolution{Proxy: explain.Proxy{Name: "any.shop", Namespace: "shop"}, Name: "x.test", Reason: "no service of the mesh has this host"}
	clitest.Same(t, "not of the mesh", resolve(unknown, "x.test", "-n", "shop").Out, `asks    any sidecar of namespace shop
name    x.test
answer  what the resolvers of the machine say
since   no service of the mesh has this host
`)
	clitest.Same(t, "asked", asked, "GET "+explain.ResolvePath+"?host=x.test&namespace=shop")
	if o := resolve(unknown, "x.test", "-o", "json"); !strings.Contains(o.Out, `"reason": "no service`) || !strings.HasSuffix(asked, "namespace=default") {
		t.Errorf("%+v, asked %s", o, asked)
	}
	alias := explain.Resolution{
		Proxy: explain.Proxy{Name: "any.shop", Namespace: "shop"}, Name: "front", Host: "front.shop.svc.cluster.local", AliasOf: "web.test", Namespace: "shop", Registry: "External",
		Addresses: []string{"10.9.0.1"}, From: explain.OwnAddresses,
	}
	clitest.Same(t, "an alias", resolve(alias, "front", "-n", "shop").Out, `asks     any sidecar of namespace shop
name     front
host     front.shop.svc.cluster.local
service  namespace shop, of the registry External
A        10.9.0.1
alias    of web.test
from     addresses of web.test are its own
`)
	file := clitest.Write(t, map[string]string{"a.yaml": clitest.Entry("x", "") + "---\napiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n"}) + "/a.yaml"
	resolve(unknown, "x.shop", "-f", file)
	clitest.Same(t, "asked, as if files were applied", asked, "POST "+explain.ResolvePath+"?host=x.shop&namespace=default")
}

// TestBadLinesOfDNS: what is wrong, missing or there twice is refused before any server is asked.
func TestBadLinesOfDNS(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]struct {
		code int
		says string
	}{
		"dns resolve":                       {exit.Usage, "accepts 1 arg(s), received 0"},
		"dns resolve a b":                   {exit.Usage, "accepts 1 arg(s), received 2"},
		"dns resolve a:80":                  {exit.Usage, `"a:80" is no name: give a host without a port`},
		"dns resolve http://a":              {exit.Usage, `"http://a" is no name`},
		"dns resolve a --from vm-1 -n shop": {exit.Usage, "--from has its namespace, and -n is one: leave one of them out"},
		"dns resolve a -o table":            {exit.Usage, `-o "table": use json or yaml`},
		"dns resolve a -f absent.yaml":      {exit.Data, "-f absent.yaml: no such file or directory"},
		"dns resolve a --from":              {exit.Usage, "--from needs a value"},
		"dns resolv":                        {exit.Usage, "resolve"},
	} {
		o := do(t, "", strings.Fields(line)...)
		if o.Code != want.code || o.Out != "" || !strings.Contains(o.Err, want.says) {
			t.Errorf("%s: %+v, want %v", line, o, want)
		}
	}
}
