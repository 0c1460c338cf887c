package verdict_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/portolan-mesh/portolan/xds/verdict"
	"github.com/portolan-mesh/portolan/xds/verdict/index"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// TestWordsOfVerdicts: texts for users that depend on other objects.
func TestWordsOfVerdicts(t *testing.T) {
	t.Parallel()
	bytes := gateway("bytes", `{selector: {app: edge}, servers: [{port: {number: 9000, name: a, protocol: TCP}, hosts: ["*"]}]}`)
	web := gateway("web", `{selector: {app: edge}, servers: [{port: {number: 8080, name: a, protocol: HTTP}, hosts: ["*"]}]}`)
	for _, tc := range []struct {
		name    string
		objects []string
		want    []string // verdicts on the VirtualService v, as "code field message: remedy"
	}{
		{
			name:    "http routes for bytes",
			objects: []string{entry, bytes, routes("v", `{hosts: [web.example.com], gateways: [bytes], http: [{route: [{destination: {host: web.example.com}}]}]}`)},
			want:    []string{"PTL0172 spec.http is for HTTP, and no HTTP server of gateway/default/bytes has its hosts: it has no effect there: add a server"},
		},
		{
			name:    "tcp routes for HTTP",
			objects: []string{entry, web, routes("v", `{hosts: [web.example.com], gateways: [web], tcp: [{route: [{destination: {host: web.example.com}}]}]}`)},
			want:    []string{"PTL0172 spec.tcp[0] is for TCP, and no TCP server of gateway/default/web has its hosts and ports: it has no effect there: add a server"},
		},
		{
			name:    "a gateway without the routes",
			objects: []string{entry, bytes, web, routes("v", `{hosts: [web.example.com], gateways: [web, bytes], http: [{route: [{destination: {host: web.example.com}}]}]}`)},
			want:    []string{"PTL0172 spec.gateways[1] is a Gateway for none of the routes, and no server of gateway/default/bytes has their protocol, hosts and ports: it has no effect there: add a server"},
		},
		{
			name:    "hosts that one of two gateways does not serve",
			objects: []string{entry, web, gateway("some", `{selector: {app: edge}, servers: [{port: {number: 8081, name: a, protocol: HTTP}, hosts: [web.example.com]}]}`), routes("v", `{hosts: [a.test, web.example.com, b.test, c.test, d.test], gateways: [web, some], http: [{route: [{destination: {host: web.example.com}}]}]}`)},
			want:    []string{`PTL0112 spec.hosts "a.test", "b.test", "c.test" and 1 more are no hosts that gateway/default/some serves for namespace default: the gateway has no route for them: add them to the hosts of a server of the Gateway: it serves web.example.com`},
		},
		{
			name: "hosts that a server of another Gateway has more exactly",
			objects: []string{entry, gateway("wide", `{selector: {app: edge}, servers: [{port: {number: 443, name: a, protocol: HTTPS}, hosts: ["*.test"], tls: {mode: SIMPLE, serverCertificate: /c, privateKey: /k}}]}`),
				gateway("exact", `{selector: {app: edge}, servers: [{port: {number: 443, name: b, protocol: HTTPS}, hosts: [a.test, b.test], tls: {mode: SIMPLE, serverCertificate: /c, privateKey: /k}}]}`),
				routes("v", `{hosts: [a.test, b.test], gateways: [wide], http: [{route: [{destination: {host: web.example.com}}]}]}`)},
			want: []string{`PTL0112 spec.hosts requests for "a.test", "b.test" go to a server of gateway/default/exact on port 443, whose hosts name them more exactly: these routes get none: name that Gateway in gateways too, or give the routes to a host of their own`},
		},
		{
			name:    "a subset of a rule without any",
			objects: []string{entry, rule("r", `{host: web.example.com}`), routes("v", `{hosts: [web.example.com], http: [{route: [{destination: {host: web.example.com, subset: v2}}]}]}`)},
			want:    []string{`PTL0102 spec.http[0].route[0].destination.subset "v2" is no subset of web.example.com: requests that take the route are answered with 503: add the subset to destinationrule/default/r.`},
		},
		{
			name:    "a subset of a rule with others",
			objects: []string{entry, rule("r", `{host: web.example.com, subsets: [{name: v1, labels: {version: v1}}]}`), routes("v", `{hosts: [web.example.com], http: [{route: [{destination: {host: web.example.com, subset: v2}}]}]}`)},
			want:    []string{`PTL0102 spec.http[0].route[0].destination.subset "v2" is no subset of web.example.com: requests that take the route are answered with 503: add the subset to destinationrule/default/r, or use one that it has: v1.`},
		},
		{
			name:    "a host below a wildcard",
			objects: []string{entry, dynamic, routes("v", `{hosts: [web.example.com], http: [{route: [{destination: {host: api.example.org}}]}]}`)},
			want:    []string{`PTL0101 spec.http[0].route[0].destination.host "api.example.org" is of no service: requests that take the route are answered with 503: *.example.org covers it: name that as the host`},
		},
		{
			name:    "a host below none",
			objects: []string{entry, dynamic, routes("v", `{hosts: [web.example.com], http: [{route: [{destination: {host: api.example.net}}]}]}`)},
			want:    []string{`PTL0101 spec.http[0].route[0].destination.host "api.example.net" is of no service: requests that take the route are answered with 503: add a ServiceEntry with the host`},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			w := xdstest.NewWorld(t, tc.objects...)
			x := (*index.Index)(nil).Next(verdict.Facts{Mesh: w.Context(), Proxies: proxies(router(map[string]string{"app": "edge"}))})
			var got []string
			for l := range x.Lists() {
				for i, v := range l.Verdicts {
					if l.Of.Name != "v" {
						continue
					}
					text := string(v.Code) + " " + v.Field + " " + v.Message + ": " + v.Remedy + "."
					if i < len(tc.want) && strings.HasPrefix(text, tc.want[i]) {
						text = tc.want[i]
					}
					got = append(got, text)
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("verdicts (-want +got)\n%s", diff)
			}
		})
	}
}
