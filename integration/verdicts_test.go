package integration

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/xds/verdict/finding"
)

// sound is a service with its rule and routes, for no gateway, and with nothing odd.
const sound = `
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: web, namespace: shop}
spec:
  hosts: [web.example.com]
  ports: [{number: 80, name: http, protocol: HTTP}]
  resolution: STATIC
  endpoints: [{address: 127.0.0.1, labels: {version: v1}}]
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: web, namespace: shop}
spec:
  host: web.example.com
  subsets: [{name: v1, labels: {version: v1}}]
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: web, namespace: shop}
spec:
  hosts: [web.example.com]
  http: [{route: [{destination: {host: web.example.com, subset: v1}}]}]
`

// TestMistakesAreTold makes common mistakes, one after another. apply warns of each, and the
// object and analyze report it until its cause is gone.
func TestMistakesAreTold(t *testing.T) {
	t.Parallel()
	s := startServer(t, serverOptions{})
	s.apply(sound)
	if out := s.try("", "analyze"); out.code != 0 || out.stdout != "" {
		t.Fatalf("analyze of what is sound: %d\n%s%s", out.code, out.stdout, out.stderr)
	}
	routes := func(name, spec string) string {
		return "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: " + name + ", namespace: shop}\nspec: " + spec + "\n"
	}
	for _, m := range []struct {
		name, document string
		object         string // "plural/name"
		code, field    string
		condition      string
		exit           int  // exit code of analyze
		info           bool // what a strict apply lets through
		mend           string
	}{
		{
			name:     "a host that no service has",
			document: routes("other", `{hosts: [web.example.org], http: [{route: [{destination: {host: web.example.org}}]}]}`),
			object:   "virtualservices/other", code: "PTL0101", field: "spec.http[0].route[0].destination.host", condition: "ResolvedRefs", exit: 79,
		},
		{
			name:     "a subset without a rule",
			document: routes("web", `{hosts: [web.example.com], http: [{route: [{destination: {host: web.example.com, subset: v2}}]}]}`),
			object:   "virtualservices/web", code: "PTL0102", field: "spec.http[0].route[0].destination.subset", condition: "ResolvedRefs", exit: 79, mend: sound,
		},
		{
			name:     "a selector of nothing",
			document: "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {name: none, namespace: shop}\nspec: {hosts: [none.example.com], ports: [{number: 80, name: http, protocol: HTTP}], resolution: STATIC, workloadSelector: {labels: {app: none}}}\n",
			object:   "serviceentries/none", code: "PTL0108", field: "spec.workloadSelector", condition: "ResolvedRefs", info: true,
		},
		{
			name:     "two VirtualServices for one host",
			document: routes("younger", `{hosts: [web.example.com], http: [{route: [{destination: {host: web.example.com}}]}]}`),
			object:   "virtualservices/younger", code: "PTL0111", field: "spec.hosts[0]", condition: "Conflicted", exit: 79,
		},
		{
			name:     "a port without a protocol",
			document: "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {name: plain, namespace: shop}\nspec: {hosts: [plain.example.com], addresses: [10.9.0.1], ports: [{number: 80, name: x}], resolution: STATIC, endpoints: [{address: 127.0.0.1}]}\n",
			object:   "serviceentries/plain", code: "PTL0128", field: "spec.ports[0].protocol", condition: "PartlyServed",
		},
		{
			name:     "a workload that nothing selects",
			document: "apiVersion: networking.istio.io/v1\nkind: WorkloadEntry\nmetadata: {name: alone, namespace: shop}\nspec: {address: 10.9.0.9, labels: {app: alone}}\n",
			object:   "workloadentries/alone", code: "PTL0215", field: "spec.labels", condition: "ResolvedRefs", info: true,
		},
		{
			name:     "a rule where neither the service nor a client is",
			document: "apiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: {name: far, namespace: shop}\nspec: {host: far.example.com, trafficPolicy: {outlierDetection: {}}}\n---\napiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {name: far, namespace: far}\nspec: {hosts: [far.example.com], ports: [{number: 80, name: http, protocol: HTTP}], resolution: STATIC, endpoints: [{address: 127.0.0.1}]}\n",
			object:   "destinationrules/far", code: "PTL0211", field: "metadata.namespace", condition: "ResolvedRefs", info: true,
		},
		{
			name:     "a wrong namespace",
			document: "apiVersion: networking.istio.io/v1\nkind: Sidecar\nmetadata: {name: s, namespace: shop}\nspec: {egress: [{hosts: [shpo/*]}]}\n",
			object:   "sidecars/s", code: "PTL0124", field: "spec.egress[0].hosts[0]", condition: "ResolvedRefs",
		},
		{
			name:     "a gateway that is not there",
			document: routes("gated", `{hosts: [web.example.com], gateways: [edge], http: [{route: [{destination: {host: web.example.com}}]}]}`),
			object:   "virtualservices/gated", code: "PTL0103", field: "spec.gateways[0]", condition: "ResolvedRefs", exit: 79,
		},
		{
			name:     "a gateway that no proxy runs",
			document: "apiVersion: networking.istio.io/v1\nkind: Gateway\nmetadata: {name: g, namespace: shop}\nspec: {selector: {app: nobody}, servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: ['*']}]}\n",
			object:   "gateways/g", code: "PTL0116", field: "spec.selector", condition: "ResolvedRefs",
		},
		{
			name:     "a route behind one that takes all",
			document: routes("web", `{hosts: [web.example.com], http: [{route: [{destination: {host: web.example.com}}]}, {match: [{uri: {prefix: /x}}], route: [{destination: {host: web.example.com}}]}]}`),
			object:   "virtualservices/web", code: "PTL0113", field: "spec.http[1]", condition: "Conflicted", mend: sound,
		},
		{
			name: "an address of a service that does not speak HTTP",
			document: "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {name: taker, namespace: shop}\nspec: {hosts: [taker.example.com], addresses: [10.9.0.2], ports: [{number: 5000, name: x, protocol: TCP}], resolution: STATIC, endpoints: [{address: 127.0.0.1}]}\n---\n" +
				"apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {name: loser, namespace: shop}\nspec: {hosts: [loser.example.com], addresses: [10.9.0.2], ports: [{number: 5000, name: x, protocol: HTTP}], resolution: STATIC, endpoints: [{address: 127.0.0.1}]}\n",
			object: "serviceentries/loser", code: "PTL0129", field: "spec.addresses[0]", condition: "Conflicted", exit: 79,
		},
		{
			name:     "an egress listener that has the port of another service",
			document: "apiVersion: networking.istio.io/v1\nkind: Sidecar\nmetadata: {name: s, namespace: shop}\nspec: {egress: [{port: {number: 80, name: x, protocol: HTTP}, hosts: [shop/none.example.com]}, {hosts: [shop/*]}]}\n",
			object:   "sidecars/s", code: "PTL0130", field: "spec.egress[0].port", condition: "Conflicted",
		},
		{
			name:     "a field that is not served",
			document: "apiVersion: networking.istio.io/v1\nkind: Gateway\nmetadata: {name: g, namespace: shop}\nspec: {selector: {app: edge}, servers: [{defaultEndpoint: \"127.0.0.1:80\", port: {number: 80, name: http, protocol: HTTP}, hosts: [\"*\"]}]}\n",
			object:   "gateways/g", code: "PTL0121", field: "spec.servers[0].defaultEndpoint", condition: "PartlyServed",
		},
	} {
		t.Run(m.name, func(t *testing.T) {
			plural, name, _ := strings.Cut(m.object, "/")
			tells := func(what, text string) {
				t.Helper()
				if !strings.Contains(text, m.code) || !strings.Contains(text, m.field) {
					t.Errorf("%s does not tell %s of %s:\n%s", what, m.code, m.field, text)
				}
			}
			args, code := []string{"apply", "-f", "-", "--strict"}, 65
			if m.info {
				args, code = append(args, "--dry-run=server"), 0
			}
			strict := s.try(m.document, args...)
			if strict.code != code {
				t.Errorf("a strict apply: %d, want %d", strict.code, code)
			}
			tells("a strict apply", strict.stderr)
			would := s.try(m.document, "analyze", "-f", "-")
			tells("analyze of the file", would.stdout)
			tells("a dry run", s.try(m.document, "apply", "-f", "-", "--dry-run=server").stderr)
			tells("the apply", s.try(m.document, "apply", "-f", "-").stderr)
			is := s.try("", "analyze")
			tells("analyze", is.stdout)
			if is.stdout != would.stdout || is.code != would.code || is.code != m.exit {
				t.Errorf("analyze of the file had said, exit %d:\n%sanalyze says, exit %d, want %d:\n%s", would.code, would.stdout, is.code, m.exit, is.stdout)
			}
			status := "True"
			if m.condition == "ResolvedRefs" {
				status = "False"
			}
			s.awaitCondition(plural, name, m.condition, status, m.code)
			tells("describe", s.must("", "describe", m.object, "-n", "shop"))

			if m.mend != "" {
				s.apply(m.mend)
			} else {
				s.remove(m.document)
			}
			if out := s.try("", "analyze"); out.code != 0 || out.stdout != "" {
				t.Errorf("analyze of what was mended: %d\n%s%s", out.code, out.stdout, out.stderr)
			}
			if m.mend != "" {
				eventually(t, m.condition+" is gone", func() error {
					if c := s.conditions(plural, name); c[m.condition].status != "" {
						return fmt.Errorf("%s is still %v", m.condition, c[m.condition])
					}
					return nil
				})
			}
		})
	}
}

// TestDeleteTellsOfWhatIsLeft deletes a rule whose subset a route uses. Without --yes the
// delete is refused and names the route. With it, a warning does. A batch that deletes both
// does neither.
func TestDeleteTellsOfWhatIsLeft(t *testing.T) {
	s := startServer(t, serverOptions{})
	s.apply(sound)
	refused := s.try("", "delete", "dr/web", "-n", "shop")
	if refused.code != 64 || refused.stdout != "" || !strings.Contains(refused.stderr, "Others refer to destinationrule/shop/web. Without it:\n  virtualservice/shop/web: ") || !strings.Contains(refused.stderr, "add --yes") {
		t.Errorf("the delete of a rule that is used, %d, says:\n%s%s", refused.code, refused.stdout, refused.stderr)
	}
	s.must("", "get", "dr/web", "-n", "shop")
	if out := s.try("", "delete", "dr/web", "-n", "shop", "--yes"); out.code != 0 || !strings.Contains(out.stderr, "virtualservice/shop/web") || !strings.Contains(out.stderr, "PTL0102") {
		t.Errorf("the delete of a rule that is used says, with --yes, %d:\n%s%s", out.code, out.stdout, out.stderr)
	}
	var list finding.List
	if err := json.Unmarshal([]byte(s.try("", "analyze", "-o", "json").stdout), &list); err != nil || len(list.Items) != 1 || list.Items[0].Code != "PTL0102" || list.Items[0].Severity != "error" {
		t.Errorf("findings: %v %+v", err, list)
	}
	if out := s.try("", "analyze", "--suppress", "IST0101=virtualservice/shop/*"); out.code != 0 {
		t.Errorf("analyze without what is suppressed: %d\n%s", out.code, out.stdout)
	}
	s.apply(sound)
	if out := s.try(sound, "delete", "-f", "-"); out.code != 0 || strings.Contains(out.stderr, "PTL") {
		t.Errorf("the delete of all says, %d:\n%s%s", out.code, out.stdout, out.stderr)
	}
}

// TestDeleteOfTheLastWorkload asks for confirmation, since the service loses its last endpoint.
func TestDeleteOfTheLastWorkload(t *testing.T) {
	s := startServer(t, serverOptions{})
	s.apply(`
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: web, namespace: shop}
spec: {hosts: [web.example.com], ports: [{number: 80, name: http, protocol: HTTP}], resolution: STATIC, workloadSelector: {labels: {app: web}}}
---
apiVersion: networking.istio.io/v1
kind: WorkloadEntry
metadata: {name: a, namespace: shop}
spec: {address: 10.0.0.1, labels: {app: web}}
---
apiVersion: networking.istio.io/v1
kind: WorkloadEntry
metadata: {name: b, namespace: shop}
spec: {address: 10.0.0.2, labels: {app: web}}
`)
	s.must("", "delete", "we/a", "-n", "shop")
	out := s.try("", "delete", "we/b", "-n", "shop")
	if out.code != 64 || !strings.Contains(out.stderr, "Others refer to workloadentry/shop/b. Without it:\n  serviceentry/shop/web: ") || !strings.Contains(out.stderr, "PTL0108") {
		t.Errorf("the delete of the last workload, %d, says:\n%s%s", out.code, out.stdout, out.stderr)
	}
	s.must("", "delete", "we/b", "se/web", "-n", "shop")
}

// TestBrokenMeshIsAnalyzed applies a mesh with ten faults. analyze names each with its object
// and field, and nothing else. It reports a wrong selector on both sides.
func TestBrokenMeshIsAnalyzed(t *testing.T) {
	s := startServer(t, serverOptions{})
	s.must("", "apply", "-f", "testdata/broken-mesh.yaml")
	out := s.try("", "analyze", "-o", "json")
	var list finding.List
	if err := json.Unmarshal([]byte(out.stdout), &list); err != nil || out.code != 79 {
		t.Fatalf("analyze: exit code %d, %v\n%s%s", out.code, err, out.stdout, out.stderr)
	}
	var got []string
	for _, f := range list.Items {
		got = append(got, fmt.Sprintf("%s %s/%s/%s %s", f.Code, strings.ToLower(f.Object.Kind), f.Object.Namespace, f.Object.Name, f.Field))
	}
	slices.Sort(got)
	want := []string{
		"PTL0101 virtualservice/shop/payments spec.http[0].route[0].destination.host",
		"PTL0102 virtualservice/shop/reviews spec.http[0].route[0].destination.subset",
		"PTL0103 virtualservice/shop/front spec.gateways[1]",
		"PTL0104 destinationrule/shop/reviews spec.subsets[1]",
		"PTL0108 serviceentry/shop/payments spec.workloadSelector",
		"PTL0111 virtualservice/shop/reviews-timeouts spec.hosts[0]",
		"PTL0113 virtualservice/shop/orders spec.http[1]",
		"PTL0116 gateway/shop/edge spec.selector",
		"PTL0124 sidecar/shop/default spec.egress[0].hosts[1]",
		"PTL0128 serviceentry/finance/ledger spec.ports[0].protocol",
		"PTL0215 workloadentry/shop/payments-1 spec.labels",
	}
	expectEqual(t, "the findings", strings.Join(got, "\n"), strings.Join(want, "\n"))

	out = s.try("", "analyze", "--suppress", "PTL0108=*/shop/*")
	severities := ""
	for line := range strings.Lines(out.stdout) {
		severities += line[:1]
	}
	if severities != "eeeewwwwwi" || !strings.Contains(out.stderr, "4 errors, 5 warnings, 1 info. (1 suppressed)") {
		t.Errorf("the worst first, and how many: %s\n%s", severities, out.stderr)
	}
	if out := s.try("", "analyze", "--suppress", "PTL9999=*/shop/*"); out.code != 64 || !strings.Contains(out.stderr, "there is no code PTL9999") {
		t.Errorf("a code that is none: %d, %s", out.code, out.stderr)
	}
}

// awaitIssue waits until an object of the namespace shop has a verdict.
func (s *server) awaitIssue(kind, name, code, words string) {
	s.t.Helper()
	eventually(s.t, name+" has "+code, func() error {
		if out := s.must("", "get", kind, name, "-n", "shop", "-o", "yaml"); !strings.Contains(out, code) || !strings.Contains(out, words) {
			return fmt.Errorf("%s", out)
		}
		return nil
	})
}

// awaitNoIssue waits until an object of the namespace shop lacks a verdict.
func (s *server) awaitNoIssue(kind, name, code string) {
	s.t.Helper()
	eventually(s.t, name+" lacks "+code, func() error {
		if out := s.must("", "get", kind, name, "-n", "shop", "-o", "yaml"); strings.Contains(out, code) {
			return fmt.Errorf("%s", out)
		}
		return nil
	})
}
