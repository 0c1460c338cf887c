package verdict_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/portolan-mesh/portolan/storage/secret"
	"github.com/portolan-mesh/portolan/storage/status"
	"github.com/portolan-mesh/portolan/xds/verdict"
	"github.com/portolan-mesh/portolan/xds/verdict/index"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// TestIngresses: what is odd about an Ingress is a verdict on it, and nothing else has any.
func TestIngresses(t *testing.T) {
	t.Parallel()
	of := func(name, spec string) string {
		return "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {name: " + name + ", namespace: default}\nspec: {ingressClassName: istio, " + spec + "}\n"
	}
	rule := func(host, path, service, port string) string {
		return "rules: [{host: " + host + ", http: {paths: [{pathType: Prefix, path: " + path + ", backend: {service: {name: " + service + ", port: {" + port + "}}}}]}}]"
	}
	const (
		class = "apiVersion: networking.k8s.io/v1\nkind: IngressClass\nmetadata: {name: istio}\nspec: {controller: istio.io/ingress-controller}\n"
		other = "apiVersion: networking.k8s.io/v1\nkind: IngressClass\nmetadata: {name: istio}\nspec: {controller: example.com/other}\n"
		rest  = "defaultBackend: {service: {name: web, port: {number: 80}}}"
	)
	web := xdstest.Object("ServiceEntry", "web", "{hosts: [web.default.svc.cluster.local], ports: [{number: 80, name: http, protocol: HTTP}], resolution: STATIC, endpoints: [{address: 10.0.0.1}]}")
	hidden := xdstest.Object("ServiceEntry", "hidden", "{hosts: [hidden.default.svc.cluster.local], exportTo: ['.'], ports: [{number: 80, name: http, protocol: HTTP}], resolution: STATIC, endpoints: [{address: 10.0.0.2}]}")
	good := of("a", rule("a.test", "/", "web", "number: 80"))
	edge := func() *status.Proxy {
		p := router(map[string]string{"istio": "ingressgateway"})
		p.Namespace = "istio-system"
		return p
	}
	for _, tc := range []struct {
		name    string
		objects []string
		none    bool // no proxy is known
		secrets map[string][]string
		want    []string
	}{
		{name: "good", objects: []string{class, web, good, of("b", rule("a.test", "/b", "web", "name: http"))}},
		{name: "no class", objects: []string{web, good}, want: []string{"a PTL0501 spec.ingressClassName"}},
		{name: "of another controller", objects: []string{other, web, good}, want: []string{"a PTL0501 spec.ingressClassName"}},
		{name: "no gateway", objects: []string{class, web, good}, none: true, want: []string{"a PTL0116 spec"}},
		{name: "no service", objects: []string{class, good}, want: []string{"a PTL0101 spec.rules[0].http.paths[0].backend.service.name"}},
		{name: "no service for a named port", objects: []string{class, of("a", rule("a.test", "/", "web", "name: http"))}, want: []string{"a PTL0101 spec.rules[0].http.paths[0].backend.service.name"}},
		{name: "not exported", objects: []string{class, hidden, of("a", rule("a.test", "/", "hidden", "number: 80"))}, want: []string{"a PTL0125 spec.rules[0].http.paths[0].backend.service.name"}},
		{name: "no such port", objects: []string{class, web, of("a", rule("a.test", "/", "web", "number: 81"))}, want: []string{"a PTL0110 spec.rules[0].http.paths[0].backend.service.port.number"}},
		{name: "no port of the name", objects: []string{class, web, of("a", rule("a.test", "/", "web", "name: grpc"))}, want: []string{"a PTL0110 spec.rules[0].http.paths[0].backend.service.port.name"}},
		{name: "no secret", objects: []string{class, web, of("a", "tls: [{hosts: [none.test]}, {hosts: [a.test], secretName: door}], "+rule("a.test", "/", "web", "number: 80"))}, want: []string{"a PTL0311 spec.tls[1].secretName", "a PTL0128 spec.tls[0].secretName"}},
		{name: "the secret", objects: []string{class, web, of("a", "tls: [{hosts: [a.test], secretName: door}], "+rule("a.test", "/", "web", "number: 80"))}, secrets: map[string][]string{"istio-system/door": {secret.TLSCert, secret.TLSKey}}, want: []string{"a PTL0353 spec.tls[0].hosts[0] beside door"}},
		{name: "a host of TLS twice", secrets: map[string][]string{"istio-system/door": {secret.TLSCert, secret.TLSKey}}, objects: []string{class, web, of("a", "tls: [{hosts: [a.test], secretName: door}], "+rule("a.test", "/", "web", "number: 80")), of("b", "tls: [{hosts: [b.test], secretName: door}, {hosts: [c.test, a.test], secretName: door}], "+rule("b.test", "/", "web", "number: 80"))},
			want: []string{"a PTL0353 spec.tls[0].hosts[0] beside door", "b PTL0119 spec.tls[1].hosts beside a", "b PTL0353 spec.tls[0].hosts[0] beside door"}},
		{name: "a path of an older one", objects: []string{class, web, good, of("b", rule("a.test", "/", "web", "number: 80"))}, want: []string{"b PTL0113 spec.rules[0].http.paths[0] beside a"}},
		{name: "several default backends", objects: []string{class, web, of("a", rest), of("b", rest)}, want: []string{"b PTL0113 spec.defaultBackend beside a"}},
		{name: "a default backend that one host does not need", objects: []string{class, web, of("a", rest+", "+rule("a.test", "/", "web", "number: 80"))}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			w := xdstest.NewWorld(t)
			var known []*status.Proxy
			if !tc.none {
				known = append(known, edge())
			}
			judged := func(x *index.Index) *index.Index {
				return x.Next(verdict.Facts{Mesh: w.Context(), Proxies: proxies(known...)})
			}
			x := judged(nil)
			for _, object := range slices.Concat(tc.objects[1:], tc.objects[:1]) { // the class comes last
				w.Apply(object)
				x = judged(x)
			}
			for name, entries := range tc.secrets {
				w.PutSecret(name, entries...)
			}
			x = judged(x)
			if diff := cmp.Diff(tc.want, said(x), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			if diff := cmp.Diff(said(judged(nil)), said(x)); diff != "" {
				t.Errorf("by increments (-want +got)\n%s", diff)
			}
		})
	}
}
