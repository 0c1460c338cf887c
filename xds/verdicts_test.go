package xds_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"
	"pgregory.net/rapid"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/discovery/kube/remote"
	"github.com/portolan-mesh/portolan/discovery/serviceentry"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/storage/seal"
	"github.com/portolan-mesh/portolan/storage/secret"
	"github.com/portolan-mesh/portolan/storage/status"
	"github.com/portolan-mesh/portolan/xds/meshconfig"
	"github.com/portolan-mesh/portolan/xds/verdict"
	"github.com/portolan-mesh/portolan/xds/verdict/index"
)

// routing draws a change of an object that routes to services, which is one revision.
func (s sources) routing() event {
	namespace, name := s.one("namespace", "shop", "edge"), s.one("name", "r", "s", "z")
	host := func(label string) string {
		return s.one(label, "a.example", "b.example", "m.example", "a", "'*.example'")
	}
	kind := s.one("kind", "VirtualService", "VirtualService", "DestinationRule", "Gateway", "Sidecar", "EnvoyFilter", "Telemetry", "WasmPlugin")
	var spec string
	switch kind {
	case "VirtualService":
		of := s.one("host", "a.example", "b.example", "'*.example'")
		spec = fmt.Sprintf(`{hosts: [%s], gateways: [%s], exportTo: [%s], http: [{route: [{destination: {host: %s, subset: %s, port: {number: %s}}}]%s}]%s}`,
			of, s.one("gateway", "mesh", "r", "edge/s", "r, mesh"), s.one("exportTo", "'*'", "."),
			host("destination"), s.one("subset", "v1", "v2", "''"), s.one("port", "80", "81"),
			s.one("mirror", "", ", mirror: {host: m.example}", ", mirrors: [{destination: {host: b.example, subset: v2}}]", ", rewrite: {uri: /x}",
				", fault: {abort: {httpStatus: 500, percentage: {value: 1}}}", ", corsPolicy: {allowOrigins: [{exact: a}]}", ", match: [{port: 81}, {port: 80, gateways: [mesh]}, {port: 82, gateways: [mesh, r]}]", ", retries: {attempts: 2, retryOn: 5xx}, timeout: 1s"), s.one("streams", "", "",
				", tcp: [{route: [{destination: {host: b.example}}]}]", ", tcp: [{match: [{destinationSubnets: [10.0.0.0/8]}], route: [{destination: {host: a.example}}]}]",
				", tcp: [{match: [{port: 81, gateways: [edge/s]}], route: [{destination: {host: a.example}}]}, {route: [{destination: {host: b.example}}]}]",
				", tls: [{match: [{sniHosts: ["+of+"]}], route: [{destination: {host: b.example, subset: v1}}]}]",
				", tcp: [{route: [{destination: {host: '*.example'}}]}]"))
		switch s.one("delegates", "", "root", "delegate") {
		case "root":
			spec = fmt.Sprintf(`{hosts: [%s], gateways: [%s], http: [{match: [{uri: {prefix: /a}}%s], delegate: {name: %s, namespace: %s}%s}, {route: [{destination: {host: %s}}]}]}`,
				s.one("host", "a.example", "'*.example'"), s.one("gateway", "mesh", "edge/s", "mesh, shop/r"), s.one("match", "", ", {headers: {x: {exact: a}}}"),
				s.one("delegate", "r", "s", "z"), s.one("of", "shop", "edge", "''"), s.one("also", "", ", mirror: {host: m.example}", ", rewrite: {uri: /x}"), host("destination"))
		case "delegate":
			spec = fmt.Sprintf(`{exportTo: [%s], http: [{%sroute: [{destination: {host: %s, subset: %s}}]%s}, {%sdirectResponse: {status: 404}}]}`,
				s.one("exportTo", "'*'", ".", "shop"), s.one("match", "", "match: [{uri: {prefix: /}}], ", "match: [{uri: {prefix: /a/b}, gateways: [r]}], "), host("destination"), s.one("subset", "v1", "''"),
				s.one("also", "", ", headers: {request: {remove: [x]}}"), s.one("last", "", "match: [{headers: {x: {exact: b}}}], "))
		}
	case "DestinationRule":
		spec = fmt.Sprintf(`{host: %s, %s, subsets: [{name: %s, labels: {v: '%s'}}], trafficPolicy: {%s}}`,
			s.one("host", "a.example", "'*.example'", "m.example"), s.one("clients", "exportTo: ['*']", "exportTo: [.]", "workloadSelector: {matchLabels: {app: a}}"), s.one("subset", "v1", "v2"), s.one("v", "1", "2"),
			s.one("policy", "loadBalancer: {simple: RANDOM}", "loadBalancer: {warmup: {duration: 1s}}, retryBudget: {percent: 1}", "tunnel: {targetHost: t.example, targetPort: 1}",
				"outlierDetection: {}, proxyProtocol: {}", "outlierDetection: {}, loadBalancer: {localityLbSetting: {failover: [{from: eu, to: us}]}}", "connectionPool: {tcp: {tcpKeepalive: {time: 1s}}, http: {h2UpgradePolicy: UPGRADE, http2KeepAlive: {interval: 1s, timeout: 1s}}}",
				"portLevelSettings: [{port: {number: 80}, loadBalancer: {consistentHash: {useSourceIp: true}}}]",
				"tls: {mode: SIMPLE, credentialName: door}", "tls: {mode: MUTUAL, credentialName: door}, portLevelSettings: [{port: {number: 80}, tls: {mode: ISTIO_MUTUAL}}]", "tls: {mode: SIMPLE, sni: a}"))
	case "Gateway":
		spec = fmt.Sprintf(`{selector: {app: %s}, servers: [{port: {number: %s, name: x, protocol: %s}, hosts: [%s]}%s]}`,
			s.one("app", "a", "b"), s.one("port", "80", "81"), s.one("protocol", "HTTP", "TCP", "HTTPS}, tls: {mode: SIMPLE, credentialName: door", "TLS}, tls: {mode: PASSTHROUGH", "TLS}, tls: {mode: AUTO_PASSTHROUGH"), s.one("host", "'*'", "a.example", "b.example", "'shop/*.example'"),
			s.one("more", "", ", {port: {number: 81, name: more, protocol: REDIS}, hosts: ['*']}"))
	case "Telemetry":
		spec = fmt.Sprintf(`{%s accessLogging: [{providers: [{name: %s}]}], tracing: [{%s}]}`,
			s.one("selector", "", "selector: {matchLabels: {app: a}},", "targetRefs: [{group: networking.istio.io, kind: Gateway, name: r}],"),
			s.one("log", "envoy", "none", "prometheus", "als"), s.one("trace", "", "providers: [{name: envoy}]"))
	case "WasmPlugin":
		spec = fmt.Sprintf(`{%s url: %s, match: [{mode: %s}], failStrategy: %s}`, s.one("selector", "", "selector: {matchLabels: {app: a}},", "targetRefs: [{group: networking.istio.io, kind: Gateway, name: r}],"),
			s.one("url", "'file:///a'", "'file:///a', sha256: "+strings.Repeat("a", 64), "'http://a.example/b', sha256: "+strings.Repeat("a", 64)), s.one("mode", "CLIENT", "SERVER"), s.one("fails", "FAIL_OPEN", "FAIL_CLOSE"))
	case "Sidecar":
		selector := s.one("selector", "", "workloadSelector: {labels: {app: a}}, ", "workloadSelector: {labels: {v: '2'}}, ")
		spec = fmt.Sprintf(`{%s%segress: [%s{hosts: ['%s/%s']}]}`, selector,
			s.one("policy", "", "outboundTrafficPolicy: {mode: ALLOW_ANY, egressProxy: {host: m.example, port: {number: 80}, subset: v1}}, "),
			s.one("listener", "", "{port: {number: 80, name: x, protocol: HTTP}, hosts: ['./a.example']}, ",
				"{port: {number: 0, name: x, protocol: TCP}, bind: 'unix:///a', hosts: ['*/m.example', './a.example']}, ",
				"{port: {number: 80, name: x, protocol: HTTP_PROXY}, hosts: ['*/*']}, "),
			s.one("of", "shop", "edge", "."), s.one("host", "a.example", "*.example", "m.example"))
	}
	if kind == "EnvoyFilter" {
		spec = fmt.Sprintf("{configPatches: [{applyTo: CLUSTER, patch: {operation: MERGE, value: {%s}}}]}",
			s.one("value", "connect_timeout: 1s", "connect_timeout: soon", "none: 1", "transport_socket: {name: a}"))
	}
	object := objectOf(s.t, kind, namespace+"/"+name, spec, int64(name[0]))
	remove := s.removal()
	return event{"config", fmt.Sprint(object.Key(), remove, object.Spec), func(r *replica) {
		if remove {
			r.remove(object)
		} else {
			r.set(object)
		}
		r.commit()
	}}
}

// mesh draws whether the mesh asks who speaks for a host.
func (s sources) mesh() *meshconfig.Config {
	out := meshconfig.Default()
	out.ExtensionProviders = []*meshv1alpha1.MeshConfig_ExtensionProvider{{Name: "als", Provider: &meshv1alpha1.MeshConfig_ExtensionProvider_EnvoyHttpAls{
		EnvoyHttpAls: &meshv1alpha1.MeshConfig_ExtensionProvider_EnvoyHttpGrpcV3LogProvider{Service: "m.example", Port: 80},
	}}}
	out.HostConsent = rapid.Bool().Draw(s.t, "asks who speaks for a host")
	return out
}

// access changes who may come in, and who may do what.
func (s sources) access() event {
	kind, namespace := s.one("kind", "Role", "RoleBinding", "User", "TokenIssuer", "HostGrant"), s.one("namespace", "shop", "istio-system")
	spec := ""
	switch kind {
	case "Role":
		spec = "{rules: [{verbs: [get], kinds: [gateways]}]}"
	case "RoleBinding":
		spec = fmt.Sprintf("{role: %s, subjects: [{kind: User, name: a}]}", s.one("role", "a", "b", "viewer"))
	case "User":
		spec = fmt.Sprintf("{disabled: %s, tokens: [%s]}", s.one("disabled", "true", "false"), s.one("tokens", "", "{id: x}", "{id: x, expires: '1970-01-01T00:01:00Z'}"))
	case "HostGrant":
		spec = fmt.Sprintf("{from: [{kind: %s, namespace: %s}], to: [{hosts: ['*']}]}", s.one("from", "VirtualService", "DestinationRule"), s.one("granted", "edge", "shop"))
	case "TokenIssuer":
		spec = fmt.Sprintf("{issuer: 'https://%s.example', audiences: [a], users: {}}", s.one("issuer", "a", "b"))
	}
	document := fmt.Sprintf("{apiVersion: portolan.io/v1, kind: %s, metadata: {name: %s, namespace: %s}, spec: %s}", kind, s.one("name", "a", "b"), namespace, spec)
	documents, err := config.Decode(kind, []byte(document), schema.Pilot().Type)
	if err != nil {
		s.t.Fatal(err)
	}
	object, remove := documents[0].Config, s.removal()
	return event{"access", fmt.Sprint(object.Key(), remove, spec), func(r *replica) {
		if remove {
			r.remove(object)
		} else {
			r.set(object)
		}
		r.commit()
	}}
}

// keyFaults draws the issuers whose keys cannot be fetched, and why.
func (s sources) keyFaults() pmap.Map[string] {
	var out pmap.Map[string]
	for _, name := range []string{"a", "b"} {
		if why := s.one("keys", "", "", "refused", "slow"); why != "" {
			out = out.Set(config.Key{Kind: schema.TokenIssuer, Namespace: "istio-system", Name: name}.Path(), why)
		}
	}
	return out
}

// clusterFaults draws what is wrong with clusters that Secrets name.
func (s sources) clusterFaults() pmap.Map[remote.Fault] {
	var out pmap.Map[remote.Fault]
	for _, name := range []string{"door", "window"} {
		if why := s.one("cluster", "", "", "refused", "slow"); why != "" {
			path := config.Key{Kind: schema.Secret, Namespace: "istio-system", Name: name}.Path()
			out = out.Set(remote.FaultKey(path, secret.TLSKey), remote.Fault{Content: s.one("content", "c", "d"), Away: why == "slow", Reason: why})
		}
	}
	return out
}

func (s sources) secrets() event {
	object := &config.Config{Meta: config.Meta{
		GroupVersionKind: schema.Secret, Name: s.one("name", "door", "window"), Namespace: s.one("namespace", "shop", "edge", "istio-system"), CreationTimestamp: time.Unix(9, 0).UTC(),
		Labels: map[string]string{remote.Label: s.one("of clusters", "", "true")},
	}}
	object.Spec = &secret.Spec{Type: secret.TLS, Sealed: &secret.Sealed{
		Content: "c", Entries: []secret.Entry{{Name: secret.TLSCert}, {Name: s.one("entry", secret.TLSKey, secret.TLSKey, secret.TLSAuthority)}},
		Certificates: []secret.Certificate{{Entry: secret.TLSCert, Names: []string{s.one("host", "a.example", "*.example")}, NotAfter: time.Unix(60*int64(len(s.one("end", "", "x"))+soonest), 0).UTC()}},
		Box:          &seal.Box{Key: s.one("key", "", "k")},
	}}
	remove := s.removal()
	return event{"secrets", fmt.Sprint(object.Key(), remove, object.Spec), func(r *replica) {
		if remove {
			r.remove(object)
		} else {
			r.set(object)
		}
		r.commit()
	}}
}

// soonest is the first minute in which a certificate of secrets may end.
const soonest = 30 * 24 * 60

// proxies draws what is known of proxies.
func (s sources) proxies() pmap.Map[*status.Proxy] {
	var out pmap.Map[*status.Proxy]
	for i := range rapid.IntRange(0, 3).Draw(s.t, "proxies") {
		p := &status.Proxy{
			Node: fmt.Sprint("p", i), Type: s.one("type", "router", "sidecar", "grpc", ""), Namespace: s.one("namespace", "shop", "edge"),
			Addresses: []string{s.one("ip", "10.0.0.1", "10.0.0.2", "10.0.0.9")}, Labels: map[string]string{"app": s.one("app", "a", "b")},
			Replica: s.one("replica", "", "r"), SelfDiscovery: rapid.Bool().Draw(s.t, "self-discovery"),
			Interception: s.one("interception", "", "NONE", "NONE", "REDIRECT"), Locality: s.one("locality", "", "", "eu"),
		}
		out = out.Set(p.Node, p)
	}
	return out
}

func (s sources) verdictEvents(least, most int) []event {
	draw := map[string]func() event{"config": s.configs, "routing": s.routing, "health": s.health, "pods": s.pods, "memory": s.memory, "secrets": s.secrets, "access": s.access}
	var events []event
	for range rapid.IntRange(least, most).Draw(s.t, "events") {
		events = append(events, draw[s.one("source", "config", "routing", "routing", "health", "pods", "memory", "secrets", "access")]())
	}
	return events
}

func (r *replica) facts(proxies pmap.Map[*status.Proxy]) verdict.Facts {
	w, known := r.server.Moment()
	if !known {
		r.t.Fatalf("there is no world")
	}
	return verdict.Facts{Mesh: w.Context, Registries: w.Registries, Proxies: proxies}
}

// verdictsOf are the verdicts of all objects, by path.
func verdictsOf(x *index.Index) map[string][]string {
	out := map[string][]string{}
	for l := range x.Lists() {
		for _, v := range l.Verdicts {
			out[l.Of.Key().Path()] = append(out[l.Of.Key().Path()], v.String())
		}
	}
	return out
}

// TestVerdictsFollowTheMesh: after any history, the verdicts that were derived change by
// change are those that one derives from nothing.
func TestVerdictsFollowTheMesh(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := sources{t}
		r := newReplicaOf(t, s.mesh(), serviceentry.Switches{})
		var x *index.Index
		var events []event
		for range rapid.IntRange(1, 6).Draw(t, "steps") {
			some := s.verdictEvents(0, 4)
			events = append(events, some...)
			r.run(t, some)
			r.settle()
			facts := r.facts(s.proxies())
			facts.KeyFaults, facts.ClusterFaults = s.keyFaults(), s.clusterFaults()
			facts.Minute = rapid.SampledFrom([]int64{0, 1, 2, soonest, soonest + 1}).Draw(t, "minute")
			x = x.Next(facts)
			if diff := cmp.Diff(verdictsOf((*index.Index)(nil).Next(facts)), verdictsOf(x)); diff != "" {
				t.Fatalf("verdicts (-from nothing +by increments)\n%s\n%s", diff, written(events))
			}
		}
	})
}

// TestReplicasDeriveTheSameVerdicts: two servers that read one store and look at different
// moments, and hear of proxies at different ones, come to the same verdicts.
func TestReplicasDeriveTheSameVerdicts(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := sources{t}
		mesh := s.mesh()
		one, two := newReplicaOf(t, mesh, serviceentry.Switches{}), newReplicaOf(t, mesh, serviceentry.Switches{})
		var first, second *index.Index
		var events []event
		for range rapid.IntRange(1, 6).Draw(t, "steps") {
			some := s.verdictEvents(0, 4)
			events = append(events, some...)
			one.run(t, some)
			two.run(t, some)
			if rapid.Bool().Draw(t, "first looks") {
				first = first.Next(one.facts(s.proxies()))
			}
			if rapid.Bool().Draw(t, "second looks") {
				second = second.Next(two.facts(s.proxies()))
			}
		}
		known := s.proxies()
		first, second = first.Next(one.facts(known)), second.Next(two.facts(known))
		if diff := cmp.Diff(verdictsOf(first), verdictsOf(second)); diff != "" {
			t.Fatalf("verdicts (-first +second)\n%s\n%s", diff, written(events))
		}
	})
}

// TestVerdictsOfWhatWouldBe: the verdicts that are foreseen for a change are those that the
// change leads to.
func TestVerdictsOfWhatWouldBe(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := sources{t}
		r := newReplicaOf(t, s.mesh(), serviceentry.Switches{})
		events := s.verdictEvents(1, 15)
		r.run(t, events)
		r.settle()
		known := s.proxies()
		x := (*index.Index)(nil).Next(r.facts(known))

		change := s.routing()
		if rapid.Bool().Draw(t, "entries") {
			change = s.configs()
		} else if rapid.Bool().Draw(t, "access") {
			change = s.access()
		}
		draft := &replica{configs: r.configs, feed: cache.NewFeed(cache.FeedOptions{Worker: cache.NewWorker(), Schemas: schema.Pilot()})}
		change.do(draft)
		_, would, _ := r.server.WouldBe(opsBetween(r.configs, draft.configs))
		foreseen := x.Next(verdict.Facts{Mesh: would.Context, Registries: would.Registries, Proxies: known})
		change.do(r)
		r.settle()
		if diff := cmp.Diff(verdictsOf(x.Next(r.facts(known))), verdictsOf(foreseen)); diff != "" {
			t.Fatalf("verdicts (-came +would)\n%s\n%s", diff, written(append(events, change)))
		}
	})
}
