package integration

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"sigs.k8s.io/yaml"

	"github.com/portolan-mesh/portolan/xds/admin"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/envoy/envoytest"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// envoyFilter is an EnvoyFilter of the namespace of the shop, given by its patches.
func envoyFilter(patches string) string {
	return "apiVersion: networking.istio.io/v1alpha3\nkind: EnvoyFilter\nmetadata: {name: patch, namespace: shop}\nspec:\n  configPatches:\n" + patches
}

// beforeRouter matches the router of the connection managers, in a context.
func beforeRouter(context, filter string) string {
	return fill(`
  - applyTo: HTTP_FILTER
    match: {context: $context, listener: {filterChain: {filter: {name: envoy.filters.network.http_connection_manager, subFilter: {name: envoy.filters.http.router}}}}}
    patch: {operation: INSERT_BEFORE, value: $filter}
`, "$context", context, "$filter", filter)
}

const luaHeader = `{name: envoy.filters.http.lua, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua, default_source_code: {inline_string: "function envoy_on_response(r) r:headers():add('x-patched', 'lua') end"}}}`

// patchedMesh are the objects that the rows of testdata/patches.yaml patch, beside those of the shop:
// services on the ports $second (HTTP) and $db (TCP), servers of the gateway on $sni and $bytes, ports of
// the sidecar's workload $in (HTTP) and $raw (TCP), and a service of a workload with traffic capture.
const patchedMesh = `
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: second, namespace: shop}
spec:
  hosts: [second.shop.test, third.shop.test, fourth.shop.test]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{number: $second, name: http, protocol: HTTP}]
  endpoints: [{address: 127.0.0.1, ports: {http: $app}}]
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: second, namespace: shop}
spec:
  hosts: [second.shop.test]
  http:
  - {name: none, match: [{uri: {prefix: /none}}], directResponse: {status: 404}}
  - {name: one, match: [{uri: {prefix: /one}}], route: [{destination: {host: second.shop.test}}]}
  - {name: two, route: [{destination: {host: second.shop.test}}]}
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: ledger, namespace: shop}
spec:
  hosts: [ledger.shop.test]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{number: $db, name: tcp, protocol: TCP}]
  endpoints: [{address: 127.0.0.1, ports: {tcp: $ledger}}]
---
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: sni, namespace: shop}
spec:
  selector: {app: edge}
  servers:
  - {port: {number: $sni, name: tls, protocol: TLS}, bind: 127.0.0.1, hosts: ["*.sni.test"], tls: {mode: PASSTHROUGH}}
  - {port: {number: $bytes, name: tcp, protocol: TCP}, bind: 127.0.0.1, hosts: ["*"]}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: sni, namespace: shop}
spec:
  hosts: ["*.sni.test"]
  gateways: [sni]
  tls:
  - {match: [{port: $sni, sniHosts: [a.sni.test]}], route: [{destination: {host: ledger.shop.test}}]}
  - {match: [{port: $sni, sniHosts: [b.sni.test]}], route: [{destination: {host: ledger.shop.test}}]}
  tcp:
  - {match: [{port: $bytes}], route: [{destination: {host: ledger.shop.test}}]}
---
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: default, namespace: shop}
spec:
  workloadSelector: {labels: {app: client}}
  ingress:
  - {port: {number: $in, protocol: HTTP, name: http}, bind: 127.0.0.1, defaultEndpoint: "127.0.0.1:$app"}
  - {port: {number: $raw, protocol: TCP, name: tcp}, bind: 127.0.0.1, defaultEndpoint: "127.0.0.1:$ledger"}
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: served, namespace: shop}
spec:
  hosts: [served.shop.test]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{number: 80, name: http, protocol: HTTP, targetPort: 8081}]
  endpoints: [{address: 10.0.0.3}]
`

// patchRow is an EnvoyFilter of testdata/patches.yaml, and what it does.
type patchRow struct {
	Name string
	// Patches are its configPatches, and Spec has its other fields.
	Patches []json.RawMessage
	Spec    map[string]any
	// Has says what is at paths of resources of a proxy: "client LDS name", the same with CDS, RDS
	// and VHOST for a virtual host wherever it is, or "client BOOTSTRAP". A text after ~ is contained
	// in what is there.
	Has map[string]map[string]string
	// Gone are the resources that a proxy does not have.
	Gone []string
	// Answers are requests: a port's name, a method, a host with a path or just this, and headers. Of
	// each they have words that are true of the answer: what reply.String says, name=value of a
	// header, and >name=value of a header of the request as it arrived, or of its protocol. A port
	// alone is a connection.
	Answers map[string]string
}

// patchWords are what texts in testdata/patches.yaml stand for.
var patchWords = []struct{ pattern, text string }{
	{`\$hcmtype`, `"@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager`},
	{`\$hcm`, `filterChain: {filter: {name: envoy.filters.network.http_connection_manager}}`},
	{`\$sub\((\S+?)\)`, `filterChain: {filter: {name: envoy.filters.network.http_connection_manager, subFilter: {name: envoy.filters.http.${1}}}}`},
	{`\$net\((\S+?)\)`, `filterChain: {filter: {name: envoy.filters.network.${1}}}`},
	{`\$(http|network|listener)\((\S+?)\)`, `"@type": type.googleapis.com/envoy.extensions.filters.${1}.${2}`},
	{`\$header\((\S+) (\S+?)\)`, `{header: {key: ${1}, value: "${2}"}}`},
	{`\$adds\((\S+?)\)`, `{name: ${1}, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.header_mutation.v3.HeaderMutation, mutations: {request_mutations: [{append: {header: {key: x-order, value: ${1}}}}]}}}`},
	{`\$limits\((\S+?)\)`, `{name: ${1}, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.network.connection_limit.v3.ConnectionLimit, stat_prefix: rows, max_connections: 99}}`},
	{`\$replies\((\d+)\)`, `{name: envoy.filters.network.http_connection_manager, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager, stat_prefix: rows,
      route_config: {name: rows, virtual_hosts: [{name: rows, domains: ["*"], routes: [{match: {prefix: /}, direct_response: {status: ${1}}}]}]},
      http_filters: [{name: envoy.filters.http.router, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}}]}}`},
}

// patchedProxies are a gateway, a sidecar, and a sidecar with traffic capture that have patches.
type patchedProxies struct {
	*server
	ports   map[string]int
	hosts   map[string]string // of requests, by port
	proxies map[string]*envoy
}

// TestEnvoyFilters applies the EnvoyFilters of testdata/patches.yaml to three Envoys, all of a round at
// once. Each does what its row says, and once they are gone, all have what they had before.
func TestEnvoyFilters(t *testing.T) {
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		x, app, ledger := newShop(t), startUpstream(t, "app"), startTCPUpstream(t, "ledger")
		ports := map[string]int{"gateway": x.gateway, "out": x.service, "app": app.port, "ledger": ledger}
		for _, name := range []string{"second", "db", "sni", "bytes", "in", "raw", "own", "more", "outbound", "inbound"} {
			ports[name] = freePort(t)
		}
		s := startServer(t, serverOptions{meshConfig: fmt.Sprintf("{proxyListenPort: %d, proxyInboundListenPort: %d}", ports["outbound"], ports["inbound"])})
		p := &patchedProxies{s, ports, map[string]string{"gateway": shopHost, "out": shopHost, "second": "second.shop.test"}, map[string]*envoy{}}
		text, err := os.ReadFile("testdata/patches.yaml")
		if err != nil {
			t.Fatal(err)
		}
		var rounds []struct {
			Round string
			Rows  []patchRow
		}
		if err := yaml.UnmarshalStrict([]byte(p.filled(string(text))), &rounds); err != nil {
			t.Fatal(err)
		}
		s.apply(x.all(100, 0), p.filled(patchedMesh))
		p.proxies["edge"], p.proxies["client"] = s.startPair(v)
		p.proxies["captured"] = s.startEnvoy(envoyOptions{kind: "sidecar", name: "captured", labels: "app=captured", interception: "REDIRECT", ip: "10.0.0.3", variant: v})
		before, count := p.contents(t), 0
		for _, round := range rounds {
			count += len(round.Rows)
			var documents []string
			for i, row := range round.Rows {
				documents = append(documents, row.document(t, i))
			}
			p.awaitSynced(p.apply(documents...), "edge", "client", "captured")
			for _, row := range round.Rows {
				t.Run(round.Round+"/"+row.Name, func(t *testing.T) { p.judge(t, &row) })
			}
			p.awaitSynced(p.remove(documents...), "edge", "client", "captured")
			eventually(t, round.Round+": all is as before", func() error {
				if other := differing(before, p.contents(t)); len(other) > 0 {
					return fmt.Errorf("these differ: %q", other)
				}
				return nil
			})
		}
		if count < 60 {
			t.Errorf("there are %d rows", count)
		}
		s.expectNothingRejected()
		for _, e := range p.proxies {
			e.expectNothingRejected()
		}
	})
}

// filled replaces the words of patchWords and the names of ports.
func (p *patchedProxies) filled(text string) string {
	for _, word := range patchWords {
		text = regexp.MustCompile(word.pattern).ReplaceAllString(text, word.text)
	}
	names := slices.Sorted(maps.Keys(p.ports))
	slices.Reverse(names) // a name may begin with another
	for _, name := range names {
		text = regexp.MustCompile(`\$`+name+`\b`).ReplaceAllString(text, fmt.Sprint(p.ports[name]))
	}
	return text
}

// document returns the EnvoyFilter.
func (r *patchRow) document(t *testing.T, index int) string {
	spec := map[string]any{"configPatches": r.Patches}
	maps.Copy(spec, r.Spec)
	out, err := json.Marshal(map[string]any{
		"apiVersion": "networking.istio.io/v1alpha3", "kind": "EnvoyFilter", "spec": spec,
		"metadata": map[string]any{"namespace": "shop", "name": fmt.Sprintf("row-%02d", index)},
	})
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// contents returns what the proxies have, without what they drain and endpoints.
func (p *patchedProxies) contents(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	for name := range p.proxies {
		dump, err := p.dump(name)
		if err != nil {
			t.Fatal(err)
		}
		for typeURL, resources := range dump.Resources {
			for of, m := range resources {
				if typeURL == resource.EndpointType || dump.Drains(typeURL, of) {
					continue
				}
				content, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
				if err != nil {
					t.Fatal(err)
				}
				out[strings.Join([]string{name, typeURL, of}, " ")] = string(content)
			}
		}
	}
	return out
}

// differing returns the keys that have other values, or none, in one of two maps.
func differing(a, b map[string]string) []string {
	out := map[string]bool{}
	for key := range a {
		out[key] = a[key] != b[key]
	}
	for key := range b {
		out[key] = a[key] != b[key]
	}
	maps.DeleteFunc(out, func(_ string, differs bool) bool { return !differs })
	return slices.Sorted(maps.Keys(out))
}

// judge waits until what the row says is true.
func (p *patchedProxies) judge(t *testing.T, row *patchRow) {
	client := clientOf(t)
	eventually(t, "the row is true", func() error {
		for what, paths := range row.Has {
			m, err := p.resource(what)
			if err != nil {
				return err
			}
			if m == nil {
				return fmt.Errorf("there is no %s", what)
			}
			for path, want := range paths {
				got := envoytest.Look(t, m, path)
				if part, ok := strings.CutPrefix(want, "~"); got != want && !(ok && strings.Contains(got, part)) {
					return fmt.Errorf("%s of %s is %q, want %q", path, what, got, want)
				}
			}
		}
		for _, what := range row.Gone {
			if m, err := p.resource(what); err != nil || m != nil {
				return fmt.Errorf("there is %s: %v, %v", what, m, err)
			}
		}
		for asked, words := range row.Answers {
			for word := range strings.FieldsSeq(words) {
				if got := p.ask(t, asked, word, func(q request) (reply, error) { return do(t.Context(), client, q) }); got != word {
					return fmt.Errorf("%s: %s, want %s", asked, got, word)
				}
			}
		}
		return nil
	})
}

// ask returns what is true instead of a word about an answer.
func (p *patchedProxies) ask(t *testing.T, asked, word string, do func(request) (reply, error)) string {
	fields := strings.Fields(asked)
	if len(fields) == 1 {
		name, err := greeting(t.Context(), p.ports[fields[0]])
		if err != nil {
			return err.Error()
		}
		return name
	}
	q := request{port: p.ports[fields[0]], host: p.hosts[fields[0]], header: map[string]string{}}
	if fields[1] == "POST" {
		q.method, fields = fields[1], fields[1:]
	}
	host, path, _ := strings.Cut(fields[1], "/")
	if q.path = "/" + path; host != "" {
		q.host = host
	}
	for _, field := range fields[2:] {
		name, value, _ := strings.Cut(field, "=")
		q.header[name] = value
	}
	got, err := do(q)
	if err != nil {
		return "none"
	}
	name, _, ofHeader := strings.Cut(word, "=")
	request, ofRequest := strings.CutPrefix(name, ">")
	switch {
	case name == ">protocol":
		return name + "=" + got.echo.Proto
	case ofRequest:
		return name + "=" + strings.Join(got.echo.Header.Values(request), "|")
	case ofHeader:
		return name + "=" + strings.Join(got.header.Values(name), "|")
	}
	return got.String()
}

// resource returns a resource that a proxy has, nil for none.
func (p *patchedProxies) resource(what string) (proto.Message, error) {
	fields := append(strings.Fields(what), "")
	if fields[1] == "BOOTSTRAP" {
		return p.bootstrap(fields[0])
	}
	dump, err := p.dump(fields[0])
	if err != nil {
		return nil, err
	}
	if fields[1] != "VHOST" {
		return dump.Resources[map[string]string{"LDS": resource.ListenerType, "CDS": resource.ClusterType, "RDS": resource.RouteType}[fields[1]]][fields[2]], nil
	}
	for name, m := range dump.Resources[resource.VirtualHostType] {
		if strings.HasSuffix(name, "/"+fields[2]) {
			return m, nil
		}
	}
	for _, m := range dump.Resources[resource.RouteType] {
		for _, host := range m.(*routev3.RouteConfiguration).GetVirtualHosts() {
			if host.GetName() == fields[2] {
				return host, nil
			}
		}
	}
	return nil, nil
}

func (p *patchedProxies) dump(name string) (*admin.Dump, error) {
	text, err := p.proxies[name].dumped()
	if err != nil {
		return nil, err
	}
	return admin.ReadDump(bytes.NewReader(text))
}

// bootstrap returns the patched bootstrap of a proxy, which a real Envoy takes.
func (p *patchedProxies) bootstrap(name string) (proto.Message, error) {
	text := p.must("", "bootstrap", "--name", name, "--ip", "10.0.0.9", "-n", "shop", "--proxy-config")
	if out, err := exec.CommandContext(p.t.Context(), needEnvoy(p.t), "--mode", "validate", "--log-level", "warning", "-c", write(p.t, name+".yaml", text)).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("an Envoy refuses it: %w: %s", err, out)
	}
	m := &bootstrapv3.Bootstrap{}
	document, err := yaml.YAMLToJSON([]byte(text))
	if err == nil {
		err = protojson.Unmarshal(document, m)
	}
	return m, err
}
