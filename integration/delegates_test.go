package integration

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/explain"
)

// delegate is a VirtualService of namespace team without hosts.
func delegate(name, spec string) string {
	return fill(`
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: $name, namespace: team}
spec: {$spec}
`, "$name", name, "$spec", strings.ReplaceAll(spec, "$host", shopHost))
}

// TestEnvoyDelegates: a gateway and a sidecar use the delegates of a VirtualService. The
// matches of delegate and root both apply. A route is left out if it conflicts with the root,
// or if its delegate is missing or not visible.
func TestEnvoyDelegates(t *testing.T) {
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		s, x := startServer(t, serverOptions{}), newShop(t)
		const api = `http: [
  {match: [{uri: {prefix: /api/new}}], route: [{destination: {host: $host, subset: v2}}], headers: {response: {set: {x-route: new}}}},
  {match: [{uri: {prefix: /other}}], directResponse: {status: 418}},
  {match: [{headers: {x-tester: {exact: "yes"}}}], route: [{destination: {host: $host, subset: v2}}]},
  {match: [{uri: {exact: /api/gone}}], directResponse: {status: 410}},
  {route: [{destination: {host: $host, subset: v1}}]}]`
		closed := func(exportTo string) string {
			return delegate("closed", "exportTo: ["+exportTo+"], http: [{directResponse: {status: 418}}]")
		}
		s.apply(x.entry(x.v1, x.v2), x.rule(), x.door(), delegate("api", api), closed("."), x.http(`
  {match: [{uri: {prefix: /api}}], delegate: {name: api, namespace: team}, headers: {response: {set: {x-route: api}}}},
  {match: [{uri: {prefix: /none}}], delegate: {name: none, namespace: team}},
  {match: [{uri: {prefix: /closed}}], delegate: {name: closed, namespace: team}},
  {route: [{destination: {host: $host, subset: v1}}]}`))
		edge, client := s.startPair(v)
		tester := map[string]string{"x-tester": "yes"}
		for at, q := range map[string]request{"gateway": x.atGateway("/"), "sidecar": x.atSidecar("/")} {
			awaitReply(t, q, "v1")
			for _, c := range []struct {
				path   string
				header map[string]string
				want   string
				route  string // in a header of the response
			}{
				{path: "/api/new/1", want: "v2", route: "new"},
				{path: "/api/1", want: "v1", route: "api"},
				{path: "/api/1", header: tester, want: "v2", route: "api"},
				{path: "/1", header: tester, want: "v1"},
				{path: "/api/gone", want: "410", route: "api"},
				{path: "/other", want: "v1"},
				{path: "/none", want: "v1"},
				{path: "/closed", want: "v1"},
			} {
				q.path, q.header = c.path, c.header
				got := send(t, q)
				expectEqual(t, c.path+" at a "+at, got.String()+" "+got.header.Get("x-route"), c.want+" "+c.route)
			}
		}
		for _, name := range []string{"reviews", "team/api"} {
			s.awaitCondition("virtualservices", name, "Programmed", "True", "")
		}
		s.awaitCondition("virtualservices", "team/api", "Conflicted", "True", "PTL0144")
		e, err := s.explain("gateway/shop/edge", fmt.Sprint(shopHost, ":", x.gateway), request{path: "/api/new/1"})
		if err != nil || e.Outcome != explain.Forwarded || e.Route.Object != "virtualservice/team/api" || e.Route.Field != "spec.http[0].match[0]" ||
			e.Route.Root != "virtualservice/shop/reviews" || e.Route.RootField != "spec.http[0].match[0]" {
			t.Errorf("explained: %v %s %+v", err, e.Outcome, e.Route)
		}

		s.awaitSynced(s.apply(closed("shop")), "edge", "client")
		for _, q := range []request{x.atGateway("/closed"), x.atSidecar("/closed")} {
			awaitReply(t, q, "418")
		}
		refused := s.try("", "delete", "vs/api", "-n", "team")
		if refused.code != 64 || !strings.Contains(refused.stderr, "virtualservice/shop/reviews: spec.http[0].delegate") || !strings.Contains(refused.stderr, "PTL0141") {
			t.Errorf("the delete of a delegate that is used, %d, says:\n%s%s", refused.code, refused.stdout, refused.stderr)
		}
		s.expectNothingRejected()
		edge.expectNothingRejected()
		client.expectNothingRejected()
	})
}

// TestEnvoyDelegateUnderLoad edits a delegate, and replaces the delegate of its root, while
// requests run: to another subset, to shares, to a service that comes with the edit, and back.
func TestEnvoyDelegateUnderLoad(t *testing.T) {
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		s, x := startServer(t, serverOptions{}), newShop(t)
		third := startUpstream(t, "v3")
		to := func(name, routes string) string { return delegate(name, "http: [{route: ["+routes+"]}]") }
		root := func(name string) string {
			return x.http("{match: [{uri: {prefix: /api}}], delegate: {name: " + name + ", namespace: team}}, {directResponse: {status: 404}}")
		}
		const v1, v2 = "{destination: {host: $host, subset: v1}, weight: 50}", "{destination: {host: $host, subset: v2}, weight: 50}"
		s.apply(x.entry(x.v1, x.v2), x.rule(), x.door(), to("one", v1), to("two", v2), root("one"))
		edge, client := s.startPair(v)
		awaitReply(t, x.atGateway("/api"), "v1")
		awaitReply(t, x.atSidecar("/api"), "v1")
		loads := []*load{startLoad(t, "gateway", x.atGateway("/api")), startLoad(t, "sidecar", x.atSidecar("/api"))}
		for _, step := range []struct {
			change  []string
			answers []string
		}{
			{[]string{to("one", v2)}, []string{"v2"}},
			{[]string{to("one", v1+", "+v2)}, []string{"v1", "v2"}},
			{[]string{x.entryOf("third", "third.shop.test", third), to("one", "{destination: {host: third.shop.test}}")}, []string{"v3"}},
			{[]string{root("two")}, []string{"v2"}},
			{[]string{to("one", v1), root("one")}, []string{"v1"}},
		} {
			s.awaitSynced(s.apply(step.change...), "edge", "client")
			for _, q := range []request{x.atGateway("/api"), x.atSidecar("/api")} {
				awaitAnswersOf(t, strings.Join(step.answers, " and ")+" alone", q, func(got map[string]int) bool {
					return len(got) == len(step.answers) && !slices.ContainsFunc(step.answers, func(name string) bool { return got[name] == 0 })
				})
			}
			for _, l := range loads {
				l.sample(50)
			}
		}
		for _, l := range loads {
			l.expectUnharmed()
		}
		s.expectNothingRejected()
		edge.expectNothingRejected()
		client.expectNothingRejected()
	})
}
