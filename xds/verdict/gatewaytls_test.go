package verdict_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/portolan-mesh/portolan/storage/secret"
	"github.com/portolan-mesh/portolan/storage/status"
	"github.com/portolan-mesh/portolan/xds/verdict"
	"github.com/portolan-mesh/portolan/xds/verdict/index"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// TestServersOfTLS: servers that lack a certificate, or lose their hosts or port, have verdicts
// until the secret comes.
func TestServersOfTLS(t *testing.T) {
	t.Parallel()
	server := func(name, hosts, tls string) string {
		return "{port: {number: 443, name: " + name + ", protocol: HTTPS}, hosts: [" + hosts + "], tls: {" + tls + "}}"
	}
	edge := func(name string, servers ...string) string {
		return gateway(name, "{selector: {app: edge}, servers: ["+strings.Join(servers, ", ")+"]}")
	}
	const door, files = "mode: SIMPLE, credentialName: door", "mode: SIMPLE, serverCertificate: /c, privateKey: /k"
	answering := func(name, gateways, hosts string) string {
		return xdstest.Object("VirtualService", name, "{hosts: ["+hosts+"], gateways: ["+gateways+"], http: [{directResponse: {status: 200}}]}")
	}
	of := func(namespace string) *status.Proxy {
		p := router(map[string]string{"app": "edge"})
		p.Node, p.Namespace = "router-"+namespace, namespace
		return p
	}
	for _, tc := range []struct {
		name    string
		objects []string
		secrets map[string][]string
		routers []*status.Proxy
		want    []string
	}{
		{name: "files are the proxy's", objects: []string{edge("e", server("a", "a.test", files))}},
		{name: "no secret", objects: []string{edge("e", server("a", "a.test", door))}, want: []string{"e PTL0311 spec.servers[0].tls.credentialName"}},
		{name: "the secret", objects: []string{edge("e", server("a", "a.test", door))}, secrets: map[string][]string{"door": {secret.TLSCert, secret.TLSKey}}},
		{name: "no authority", objects: []string{edge("e", server("a", "a.test", "mode: MUTUAL, credentialName: door"))}, secrets: map[string][]string{"door": {secret.TLSCert, secret.TLSKey}}, want: []string{"e PTL0311 spec.servers[0].tls.credentialName"}},
		{name: "one of two", objects: []string{edge("e", server("a", "a.test", "mode: SIMPLE, credentialNames: [door, more]"))}, secrets: map[string][]string{"door": {secret.TLSCert, secret.TLSKey}}, want: []string{"e PTL0311 spec.servers[0].tls.credentialNames"}},
		{name: "proxies of another namespace", objects: []string{edge("e", server("a", "a.test", door))}, secrets: map[string][]string{"door": {secret.TLSCert, secret.TLSKey}}, routers: []*status.Proxy{of("default"), of("other")}, want: []string{"e PTL0311 spec.servers[0].tls.credentialName"}},
		{name: "a host of an older Gateway", objects: []string{edge("e", server("a", "a.test", files)), edge("f", server("a", "b.test, a.test", files))}, want: []string{"f PTL0119 spec.servers[0].hosts beside e"}},
		{name: "routes for a host that a server has more exactly", objects: []string{edge("e", server("a", "'*.test'", files)), edge("f", server("b", "b.test", files)), answering("v", "e", "b.test"), answering("w", "f", "b.test")}, want: []string{"v PTL0112 spec.hosts[0] beside f"}},
		{name: "routes for both", objects: []string{edge("e", server("a", "'*.test'", files)), edge("f", server("b", "b.test", files)), answering("v", "e, f", "b.test")}},
		{name: "routes for a pattern", objects: []string{edge("e", server("a", "'*.test'", files)), edge("f", server("b", "b.test", files)), answering("v", "e", "'*.test'"), answering("w", "f", "b.test")}},
		{name: "routes for a host that a server has at another port", objects: []string{edge("e", server("a", "'*.test'", files)), edge("f", strings.Replace(server("b", "b.test", files), "443", "444", 1)), answering("v", "e, f", "b.test")}},
		{name: "routes for a host that other proxies have", objects: []string{edge("e", server("a", "'*.test'", files)), strings.Replace(edge("f", server("b", "b.test", files)), "edge", "other", 1), answering("v", "e", "b.test")}, want: []string{"f PTL0116 spec.selector"}},
		{name: "a host of an earlier server", objects: []string{edge("e", server("a", "a.test", files), server("b", "a.test", files))}, want: []string{"e PTL0119 spec.servers[1].hosts"}},
		{name: "a port of HTTP", objects: []string{edge("e", "{port: {number: 443, name: p, protocol: HTTP}, hosts: ['*']}"), edge("f", server("a", "a.test", files))}, want: []string{"f PTL0119 spec.servers[0].port beside e"}},
		{name: "HTTP on a port of TLS", objects: []string{edge("f", server("a", "a.test", files)), edge("e", "{port: {number: 443, name: p, protocol: HTTP}, hosts: ['*']}")}},
		{name: "a Gateway of other proxies", objects: []string{gateway("e", "{selector: {app: other}, servers: ["+server("a", "a.test", files)+"]}"), edge("f", server("a", "a.test", files))}, want: []string{"e PTL0116 spec.selector"}},
		{name: "routes for it", objects: []string{entry, edge("e", server("a", "web.example.com", files)), routes("v", "{hosts: [web.example.com], gateways: [e], http: ["+toIt+"]}")}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			w := xdstest.NewWorld(t, tc.objects...)
			routers := tc.routers
			if routers == nil {
				routers = []*status.Proxy{of("default")}
			}
			judged := func(x *index.Index) *index.Index {
				return x.Next(verdict.Facts{Mesh: w.Context(), Proxies: proxies(routers...)})
			}
			x := judged(nil)
			for name, entries := range tc.secrets {
				w.PutSecret(name, entries...)
			}
			x = judged(x)
			// The verdicts on the secret itself, and on the names in it, have tests of their
			// own.
			got := slices.DeleteFunc(said(x), func(v string) bool {
				return strings.HasPrefix(v, "door ") || strings.Contains(v, string(verdict.HostUncertified))
			})
			if diff := cmp.Diff(tc.want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			if diff := cmp.Diff(said(judged(nil)), said(x)); diff != "" {
				t.Errorf("by increments (-want +got)\n%s", diff)
			}
		})
	}
}
