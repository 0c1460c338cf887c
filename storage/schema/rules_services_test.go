package schema_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/storage/schema"
)

func TestServiceEntryRules(t *testing.T) {
	t.Parallel()
	checkRules(t, []rule{
		{name: "empty", kind: schema.ServiceEntry, spec: `{}`,
			refused: []string{
				"spec.hosts: is missing: name at least one host",
			},
			warned: []string{
				"spec.ports is empty: no traffic can reach this service",
			}},
		{name: "hosts", kind: schema.ServiceEntry, spec: `
			hosts: ["*", "*a.com", a.*.com, a_b.com, "a..b", "", 10.0.0.1, ok.com, ok.com]
			ports: [{number: 80, name: http, protocol: HTTP}]`,
			refused: []string{
				`spec.hosts[0]: "*" alone stands for every host: name a domain, as in "*.example.com"`,
				`spec.hosts[1]: "*a.com" is not a host name: a wildcard stands for whole labels in front, as in "*.example.com"`,
				`spec.hosts[2]: "a.*.com" is not a host name: a wildcard stands for whole labels in front, as in "*.example.com"`,
				`spec.hosts[3]: "a_b.com" is not a host name: its part "a_b" is not letters, digits and inner hyphens, 63 at most`,
				`spec.hosts[4]: "a..b" is not a host name: its part "" is not letters, digits and inner hyphens, 63 at most`,
				"spec.hosts[5]: is missing",
				`spec.hosts[6]: "10.0.0.1" is not a host name: its last part is a number`,
			},
			warned: []string{
				`spec.hosts[8] "ok.com" stands twice, also at spec.hosts[7]`,
			}},
		{name: "addresses", kind: schema.ServiceEntry, spec: `
			hosts: [a.com]
			addresses: [10.0.0.0/8, 1.2.3, 1.2.3.4]
			resolution: DNS
			ports: [{number: 80, name: http, protocol: HTTP}]`,
			refused: []string{
				"spec.addresses[0]: a range needs resolution NONE or STATIC: with DNS name single addresses",
				`spec.addresses[1]: must be an IP address or a CIDR range, is "1.2.3"`,
			}},
		{name: "ports", kind: schema.ServiceEntry, spec: `
			hosts: [a.com]
			ports:
			- {number: 0, name: "", protocol: HTTP}
			- {number: 70000, name: b_c, protocol: SMTP, targetPort: 65536}
			- {number: 80, name: http, protocol: HTTP}
			- {number: 80, name: http, protocol: HTTP}`,
			refused: []string{
				"spec.ports[0].name: is missing",
				"spec.ports[0].number: must be a port from 1 to 65535, is 0",
				`spec.ports[1].name: "b_c" is not valid: a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character`,
				"spec.ports[1].number: must be a port from 1 to 65535, is 70000",
				"spec.ports[1].targetPort: must be a port from 1 to 65535, is 65536",
				`spec.ports[1].protocol: unknown protocol "SMTP": use one of HTTP, HTTP2, GRPC, GRPC-WEB, HTTPS, TLS, TCP, MONGO, MYSQL, REDIS, UDP, HTTP_PROXY`,
				`spec.ports[3].name: "http" is set twice, also at spec.ports[2].name`,
				`spec.ports[3].number: "80" is set twice, also at spec.ports[2].number`,
			}},
		{name: "ports that are not served", kind: schema.ServiceEntry, spec: `
			hosts: [a.com]
			ports: [{number: 53, name: dns, protocol: UDP}, {number: 54, name: any}, {number: 55, name: tcp, protocol: tcp}]`,
			warned: []string{
				"spec.ports[0].protocol UDP is not served yet: the port has no effect",
				"spec.ports[1].protocol is missing: sidecars that capture traffic look for HTTP, for all others the port is plain TCP. Declare it, such as HTTP or TCP",
				"spec.ports[2].protocol is TCP and the service has no addresses: nothing but the port number tells its connections from others",
			}},
		{name: "TCP of a service that is given an address", kind: schema.ServiceEntry, spec: `
			hosts: [a.com]
			resolution: DNS
			ports: [{number: 55, name: tcp, protocol: TCP}]`},
		{name: "TCP of a host that is a pattern, which is given none", kind: schema.ServiceEntry, spec: `
			hosts: [a.com, "*.a.com"]
			resolution: STATIC
			ports: [{number: 55, name: tcp, protocol: TCP}]
			endpoints: [{address: 10.0.0.1}]`,
			warned: []string{
				"spec.ports[0].protocol is TCP and the service has no addresses: nothing but the port number tells its connections from others",
			}},
		{name: "selector and endpoints", kind: schema.ServiceEntry, spec: `
			hosts: [a.com]
			resolution: STATIC
			ports: [{number: 80, name: http, protocol: HTTP}]
			endpoints: [{address: 10.0.0.1}]
			workloadSelector: {labels: {app: "*"}}`,
			refused: []string{
				"spec.workloadSelector: excludes endpoints: set one of the two",
				`spec.workloadSelector.labels[app]: has no wildcards: name the label and its value, is "app=*"`,
			}},
		{name: "resolution NONE", kind: schema.ServiceEntry, spec: `
			hosts: [a.com]
			ports: [{number: 80, name: http, protocol: HTTP}]
			endpoints: [{address: 10.0.0.1}]`,
			refused: []string{
				"spec.endpoints: resolution NONE goes where the caller goes: leave endpoints out, or use STATIC or DNS",
			}},
		{name: "resolution NONE with a selector", kind: schema.ServiceEntry, spec: `
			hosts: [a.com]
			ports: [{number: 80, name: http, protocol: HTTP}]
			workloadSelector: {}`,
			warned: []string{
				"spec.workloadSelector has no labels and selects every workload",
			}},
		{name: "resolution STATIC", kind: schema.ServiceEntry, spec: `
			hosts: [a.com]
			resolution: STATIC
			ports: [{number: 80, name: http, protocol: HTTP}, {number: 81, name: more, protocol: HTTP}]
			endpoints: [{address: b.com}, {address: unix:///a}, {address: unix://a, ports: {http: 1}}, {}, {ports: {grpc: 0}, address: 10.0.0.1}]`,
			refused: []string{
				`spec.endpoints[0].address: resolution STATIC needs an IP address or a Unix socket, is "b.com": use DNS for host names`,
				"spec.endpoints[1].address: a Unix socket serves one port, the service has 2",
				"spec.endpoints[2].ports: a Unix socket has no ports: leave them out",
				`spec.endpoints[2].address: must be unix:// and an absolute path, is "unix://a"`,
				"spec.endpoints[2].address: a Unix socket serves one port, the service has 2",
				"spec.endpoints[3].address: is missing: an IP address, a host name, or unix:// and the path of a socket",
				"spec.endpoints[4].ports[grpc]: must be a port from 1 to 65535, is 0",
				`spec.endpoints[4].ports[grpc]: the service has no port of that name: it has "http", "more"`,
			}},
		{name: "resolution STATIC without endpoints", kind: schema.ServiceEntry, spec: `
			hosts: [a.com]
			resolution: STATIC
			ports: [{number: 80, name: http, protocol: HTTP}]`,
			warned: []string{
				"spec.endpoints is empty and there is no workloadSelector: the service has nowhere to go",
			}},
		{name: "resolution DNS", kind: schema.ServiceEntry, spec: `
			hosts: ["*.a.com", b.com]
			resolution: DNS
			ports: [{number: 80, name: http, protocol: HTTP}]`,
			refused: []string{
				`spec.hosts[0]: "*.a.com" cannot be looked up: resolution DNS needs endpoints, or a host name without a wildcard`,
			}},
		{name: "resolution DNS with a socket", kind: schema.ServiceEntry, spec: `
			hosts: ["*.a.com"]
			resolution: DNS
			ports: [{number: 80, name: http, protocol: HTTP}]
			endpoints: [{address: unix:///a}]`,
			refused: []string{
				`spec.endpoints[0].address: resolution DNS needs a host name or an IP address, is "unix:///a"`,
			}},
		{name: "resolution DNS_ROUND_ROBIN", kind: schema.ServiceEntry, spec: `
			hosts: [a.com]
			resolution: DNS_ROUND_ROBIN
			ports: [{number: 80, name: http, protocol: HTTP}]
			endpoints: [{address: b.com}, {address: c.com}]`,
			refused: []string{
				"spec.endpoints: resolution DNS_ROUND_ROBIN takes one endpoint at most, there are 2",
			}},
		{name: "resolution DYNAMIC_DNS", kind: schema.ServiceEntry, spec: `
			hosts: ["*.a.com"]
			resolution: DYNAMIC_DNS
			location: MESH_INTERNAL
			ports: [{number: 80, name: http, protocol: HTTP}, {number: 81, name: grpc, protocol: grpc-web}, {number: 82, name: proxy, protocol: HTTP_PROXY},
			        {number: 83, name: tls, protocol: TLS}, {number: 84, name: https, protocol: https}]`},
		{name: "resolution DYNAMIC_DNS with what it has no use for", kind: schema.ServiceEntry, spec: `
			hosts: ["*.a.com", b.com, "*"]
			addresses: [10.0.0.1]
			resolution: DYNAMIC_DNS
			ports: [{number: 80, name: tcp, protocol: TCP}, {number: 81, name: none}]
			endpoints: [{address: 10.0.0.2}]
			workloadSelector: {labels: {a: b}}`,
			refused: []string{
				`spec.hosts[2]: "*" alone stands for every host: name a domain, as in "*.example.com"`,
				`spec.hosts[1]: resolution DYNAMIC_DNS is for wildcards, is "b.com": use DNS for one host`,
				"spec.addresses: resolution DYNAMIC_DNS goes by the name that the client gives: leave addresses out",
				"spec.endpoints: resolution DYNAMIC_DNS goes where the client's host name leads: leave endpoints out",
				"spec.workloadSelector: excludes endpoints: set one of the two",
			},
			warned: []string{
				"spec.ports[0].protocol the port has no effect: resolution DYNAMIC_DNS needs clients that name the host, as those of HTTP, HTTP2, GRPC and TLS do",
				"spec.ports[1].protocol the port has no effect: resolution DYNAMIC_DNS needs clients that name the host, as those of HTTP, HTTP2, GRPC and TLS do",
				"spec.workloadSelector has no effect with resolution DYNAMIC_DNS",
			}},
		{name: "visibility and names", kind: schema.ServiceEntry, spec: `
			hosts: [a.com]
			ports: [{number: 80, name: http, protocol: HTTP}]
			exportTo: ["*", shop, Shop, shop]
			subjectAltNames: [spiffe://a]`,
			refused: []string{
				`spec.exportTo[0]: "*" must stand alone`,
				`spec.exportTo[3]: "shop" is set twice, also at spec.exportTo[1]`,
			},
			warned: []string{
				`spec.exportTo[2] "Shop" has capital letters, as no namespace has: it means none`,
			}},
	})
}

func TestWorkloadEntryRules(t *testing.T) {
	t.Parallel()
	checkRules(t, []rule{
		{name: "empty", kind: schema.WorkloadEntry, spec: `{}`,
			refused: []string{
				"spec.address: is missing: an IP address, a host name, or unix:// and the path of a socket",
			}},
		{name: "network only", kind: schema.WorkloadEntry, spec: `network: vm`,
			warned: []string{
				"spec.address is missing: gateways between networks are not served yet, so nothing can reach this workload",
			}},
		{name: "network and address", kind: schema.WorkloadEntry, spec: `{network: vm, address: 10.0.0.1}`,
			warned: []string{
				"spec.network decides nothing but failoverPriority: gateways between networks are not served yet, and clients of other networks connect to the address itself",
			}},
		{name: "address", kind: schema.WorkloadEntry, spec: `address: 10.0.0.256`,
			refused: []string{
				`spec.address: "10.0.0.256" is neither an IP address nor a host name`,
			}},
		{name: "an address of one machine", kind: schema.WorkloadEntry, spec: `address: "fe80::1%eth0"`,
			refused: []string{
				`spec.address: "fe80::1%eth0" is neither an IP address nor a host name`,
			}},
		{name: "directory", kind: schema.WorkloadEntry, spec: `address: unix:///run/`,
			refused: []string{
				`spec.address: must be a socket, "unix:///run/" is a directory`,
			}},
		{name: "values", kind: schema.WorkloadEntry, spec: `
			address: vm.example.com
			ports: {"": 80, http: 70000}
			labels: {"a b": c}
			locality: a/b/c/d`,
			refused: []string{
				"spec.ports[]: is missing",
				"spec.ports[http]: must be a port from 1 to 65535, is 70000",
				`spec.labels[a b]: "a b" is not valid: name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character`,
			},
			warned: []string{
				`spec.locality "a/b/c/d" has more parts than region/zone/subzone: the subzone is all that follows the zone`,
			}},
		{name: "group", kind: schema.WorkloadGroup, spec: `{}`,
			refused: []string{
				"spec.template: is missing: it says what the WorkloadEntries of the group have alike",
			}},
		{name: "group with a probe", kind: schema.WorkloadGroup, spec: `
			metadata: {labels: {a: "b c"}}
			template: {serviceAccount: a, ports: {http: 80}}
			probe: {periodSeconds: -1, httpGet: {scheme: FTP}}`,
			refused: []string{
				`spec.metadata.labels[a]: "b c" is not valid: a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character`,
				"spec.probe.periodSeconds: must not be negative, is -1",
				"spec.probe.httpGet.port: must be a port from 1 to 65535, is 0",
				`spec.probe.httpGet.scheme: must be one of HTTP, HTTPS, is "FTP"`,
			}},
		{name: "group with the annotation of an entry", kind: schema.WorkloadGroup, spec: `
			metadata: {annotations: {portolan.io/probe: '{tcpSocket: {port: 1}}'}}
			template: {}`,
			refused: []string{
				"spec.metadata.annotations[portolan.io/probe]: is for WorkloadEntries that no group makes: set spec.probe",
			}},
		{name: "group with an empty probe", kind: schema.WorkloadGroup, spec: `
			template: {}
			probe: {}`,
			refused: []string{
				"spec.probe: lacks what to do: set one of httpGet, tcpSocket, exec, grpc",
			}},
	})
}

func TestEnvoyFilterRules(t *testing.T) {
	t.Parallel()
	checkRules(t, []rule{
		{name: "sound", kind: schema.EnvoyFilter, spec: `
			targetRefs: [{kind: Gateway, group: networking.istio.io, name: edge}]
			configPatches:
			- applyTo: CLUSTER
			  match: {context: ANY, proxy: {proxyVersion: 1.*}, cluster: {name: a}}
			  patch: {operation: MERGE, value: {connect_timeout: 25ms, list: [1, a, null]}}`},
		{name: "faulty", kind: schema.EnvoyFilter, spec: `
			configPatches: [{}, {applyTo: CLUSTER, patch: {}}, {applyTo: CLUSTER, patch: {operation: ADD}}, {applyTo: CLUSTER, patch: {operation: REMOVE}}]`,
			refused: []string{
				"spec.configPatches[0].applyTo: is missing: say what is patched",
				"spec.configPatches[0].patch: is missing: say how it is changed",
				"spec.configPatches[1].patch.operation: is missing: say how it is changed",
				"spec.configPatches[2].patch.value: is missing: operation ADD needs one",
			}},
		{name: "matches", kind: schema.EnvoyFilter, spec: `
			workloadSelector: {labels: {app: a}}
			targetRefs: [{kind: Pod, name: a}]
			configPatches:
			- {applyTo: CLUSTER, match: {listener: {}}, patch: {operation: REMOVE}}
			- {applyTo: LISTENER, match: {cluster: {}}, patch: {operation: REMOVE}}
			- {applyTo: HTTP_ROUTE, match: {listener: {}}, patch: {operation: REMOVE}}
			- {applyTo: LISTENER_FILTER, match: {proxy: {proxyVersion: "("}, routeConfiguration: {}}, patch: {operation: ADD, value: {name: a}}}
			- {applyTo: NETWORK_FILTER, match: {listener: {filterChain: {filter: {}}}}, patch: {operation: ADD, value: {name: a}}}
			- {applyTo: NETWORK_FILTER, match: {listener: {filterChain: {filter: {name: a, subFilter: {name: b}}}}}, patch: {operation: REMOVE}}
			- {applyTo: HTTP_FILTER, match: {listener: {filterChain: {filter: {name: a, subFilter: {}}}}}, patch: {operation: ADD, value: {name: a}}}
			- {applyTo: CLUSTER, match: {waypoint: {}}, patch: {operation: REMOVE}}`,
			refused: []string{
				"spec.workloadSelector: excludes targetRefs: set one of the two",
				`spec.targetRefs[0].kind: must be one of Gateway, GatewayClass, Service, ServiceEntry, is "Pod"`,
				"spec.configPatches[0].match: must be of a cluster for applyTo CLUSTER",
				"spec.configPatches[1].match: must be of a listener for applyTo LISTENER",
				"spec.configPatches[2].match: must be of a routeConfiguration for applyTo HTTP_ROUTE",
				"spec.configPatches[3].match.proxy.proxyVersion: is no regular expression: error parsing regexp: missing closing ): `(`",
				"spec.configPatches[3].match: must be of a listener for applyTo LISTENER_FILTER",
				"spec.configPatches[4].match.listener.filterChain.filter.name: is missing",
				"spec.configPatches[5].match.listener.filterChain.filter.subFilter: goes with applyTo HTTP_FILTER only",
				"spec.configPatches[6].match.listener.filterChain.filter.subFilter: needs filter.name envoy.filters.network.http_connection_manager: HTTP filters are in that",
				"spec.configPatches[6].match.listener.filterChain.filter.subFilter.name: is missing",
				"spec.configPatches[7].match.waypoint: goes with context WAYPOINT only",
			},
			warned: []string{
				"spec.configPatches[7].match.waypoint is not served yet and has no effect",
			}},
		{name: "without effect", kind: schema.EnvoyFilter, spec: `
			configPatches:
			- {applyTo: CLUSTER, match: {context: WAYPOINT}, patch: {operation: REPLACE, value: {name: a}}}
			- {applyTo: ROUTE_CONFIGURATION, patch: {operation: REMOVE}}
			- {applyTo: EXTENSION_CONFIG, match: {cluster: {}}, patch: {operation: MERGE, value: {name: a}}}
			- {applyTo: NETWORK_FILTER, patch: {operation: REMOVE}}
			- {applyTo: LISTENER_FILTER, match: {listener: {portName: a, filterChain: {}}}, patch: {operation: REPLACE, value: {name: a}}}
			- {applyTo: HTTP_FILTER, match: {listener: {listenerFilter: a}}, patch: {operation: MERGE, filterClass: STATS, value: {name: a}}}
			- {applyTo: FILTER_CHAIN, match: {listener: {filterChain: {filter: {name: a}}}}, patch: {operation: REMOVE}}`,
			warned: []string{
				"spec.configPatches[0].match.context WAYPOINT is not served yet and has no effect",
				"spec.configPatches[0].patch.operation REPLACE has no effect for applyTo CLUSTER",
				"spec.configPatches[1].patch.operation REMOVE has no effect for applyTo ROUTE_CONFIGURATION",
				"spec.configPatches[2].match of listeners, routes or clusters has no effect for applyTo EXTENSION_CONFIG",
				"spec.configPatches[2].patch.operation MERGE has no effect for applyTo EXTENSION_CONFIG",
				"spec.configPatches[3].patch.operation REMOVE has no effect without a filter: name it in match.listener.filterChain.filter",
				"spec.configPatches[4].match.listener.portName has no effect: name the port by portNumber",
				"spec.configPatches[4].match.listener.filterChain has no effect for applyTo LISTENER_FILTER",
				"spec.configPatches[4].patch.operation REPLACE has no effect without a filter: name it in match.listener.listenerFilter",
				"spec.configPatches[5].match.listener.listenerFilter has an effect for applyTo LISTENER_FILTER only",
				"spec.configPatches[5].patch.operation MERGE has no effect without a filter: name it in match.listener.filterChain.filter.subFilter",
				"spec.configPatches[5].patch.filterClass has an effect for applyTo HTTP_FILTER and operation ADD only",
				"spec.configPatches[6].match.listener.filterChain.filter has no effect for applyTo FILTER_CHAIN",
			}},
		{name: "bootstrap", kind: schema.EnvoyFilter, spec: `
			configPatches:
			- {applyTo: BOOTSTRAP, patch: {operation: MERGE, value: {admin: {}}}}
			- {applyTo: BOOTSTRAP, patch: {operation: MERGE_AND_REPLACE_LIST, value: {admin: {}}}}`,
			warned: []string{
				"spec.configPatches[1].patch.operation MERGE_AND_REPLACE_LIST has no effect for applyTo BOOTSTRAP",
			}},
	})
}

func TestOtherKinds(t *testing.T) {
	t.Parallel()
	checkRules(t, []rule{
		{name: "sound", kind: schema.PeerAuthentication, spec: `{selector: {matchLabels: {app: a}}, mtls: {mode: STRICT}, portLevelMtls: {80: {mode: DISABLE}}}`},
		{name: "faulty", kind: schema.PeerAuthentication, spec: `portLevelMtls: {0: {mode: DISABLE}}`,
			refused: []string{
				"spec.portLevelMtls: needs a selector: ports are those of workloads",
				"spec.portLevelMtls[0]: must be a port from 1 to 65535, is 0",
			}},
		{name: "sound", kind: schema.Telemetry, spec: `
			selector: {matchLabels: {app: a}}
			tracing: [{providers: [{name: otel}], randomSamplingPercentage: 1.5, customTags: {a: {literal: {value: b}}}}]
			metrics: [{providers: [{name: prometheus}], reportingInterval: 5s, overrides: [{match: {metric: REQUEST_COUNT}, tagOverrides: {a: {value: "'b'"}, c: {operation: REMOVE}}}]}]
			accessLogging: [{providers: [{name: envoy}], filter: {expression: "response.code >= 400"}}]`,
			warned: []string{
				"spec.metrics[0].reportingInterval has no effect here: a stock Envoy counts the bytes of a connection when it ends",
			}},
		{name: "faulty", kind: schema.Telemetry, spec: `
			selector: {matchLabels: {app: a}}
			targetRefs: [{kind: Service, name: a}]
			tracing:
			- {providers: [{name: a}, {}], randomSamplingPercentage: 101, customTags: {"": {literal: {value: a}}, a: {}, b: {literal: {}}, c: {environment: {}}, d: {header: {}}, e: {formatter: {}}, f: {formatter: {value: "%NOPE%"}}, g: {formatter: {value: "%CEL(a b)%"}}, h: {formatter: {value: "%CEL(a['b'])%"}}}}
			- {randomSamplingPercentage: NaN}
			metrics: [{reportingInterval: 1ms, overrides: [{match: {customMetric: ""}, tagOverrides: {a: {}, b: {operation: REMOVE, value: c}, c-d: {value: "f(1)"}, e: {value: "size(a)%2"}}}]}]
			accessLogging: [{providers: [{}]}, {filter: {expression: "a =="}}, {filter: {}}]`,
			refused: []string{
				"spec.selector: excludes targetRefs: set one of the two",
				"spec.tracing[0].providers[1].name: is missing: name a provider of the mesh configuration",
				"spec.tracing[0].providers: names 2 providers: tracing takes one",
				"spec.tracing[0].randomSamplingPercentage: must be from 0 to 100, is 101",
				"spec.tracing[0].customTags[]: has no name",
				"spec.tracing[0].customTags[a]: lacks a value: set one of literal, environment, header, formatter",
				"spec.tracing[0].customTags[b].literal.value: is missing",
				"spec.tracing[0].customTags[c].environment.name: is missing",
				"spec.tracing[0].customTags[d].header.name: is missing",
				"spec.tracing[0].customTags[e].formatter.value: is missing",
				"spec.tracing[0].customTags[f].formatter.value: has the command NOPE, which proxies do not know: write %% for a sign that begins no command",
				"spec.tracing[0].customTags[g].formatter.value: has %CEL(a b)%, whose expression has b where it does not belong",
				"spec.tracing[1].randomSamplingPercentage: must be from 0 to 100, is NaN",
				"spec.metrics[0].reportingInterval: must be at least 1s, is 1ms",
				"spec.metrics[0].overrides[0].match.customMetric: is missing",
				"spec.metrics[0].overrides[0].tagOverrides[a].value: is missing: UPSERT needs one",
				"spec.metrics[0].overrides[0].tagOverrides[b].value: does not go with REMOVE: leave it out",
				"spec.metrics[0].overrides[0].tagOverrides[c-d]: is no name of a tag: write letters, digits and underscores, no digit in front",
				"spec.metrics[0].overrides[0].tagOverrides[c-d].value: calls f(), which proxies do not know",
				`spec.metrics[0].overrides[0].tagOverrides[e].value: has ")%", at which the command ends that proxies read it in: put a space between`,
				"spec.accessLogging[0].providers[0].name: is missing: name a provider of the mesh configuration",
				"spec.accessLogging[1].filter.expression: ends too early",
				"spec.accessLogging[2].filter.expression: is empty",
			},
			warned: []string{
				"spec.tracing[0].customTags[h].formatter.value names a.b, which Envoy 1.40 does not know: it has no value, and nothing matches by it; " + celRoots,
				"spec.metrics[0].overrides[0].match.customMetric has no effect here: a stock Envoy makes Istio's standard metrics alone",
				"spec.metrics[0].reportingInterval has no effect here: a stock Envoy counts the bytes of a connection when it ends",
			}},
		{name: "sound", kind: schema.WasmPlugin, spec: `
			url: https://modules.example/auth.wasm
			sha256: EC757060a4717f079363f6d1c96e04a83793174806fc5db3a230e6ab83c28fbb
			phase: AUTHN
			priority: -1
			type: NETWORK
			failStrategy: FAIL_RELOAD
			match: [{mode: SERVER, ports: [{number: 80}]}]
			pluginConfig: {a: [1, {b: null}]}
			vmConfig: {env: [{name: A, value: b}, {name: HOME, valueFrom: HOST}]}`},
		{name: "of a file", kind: schema.WasmPlugin, spec: `{url: file:///p.wasm}`},
		{name: "for images", kind: schema.WasmPlugin, spec: `{url: file:///p.wasm, imagePullPolicy: Always, imagePullSecret: a}`,
			warned: []string{
				"spec.imagePullPolicy has no effect here: it is for images (oci://), which are refused",
				"spec.imagePullSecret has no effect here: it is for images (oci://), which are refused",
			}},
		{name: "with a key", kind: schema.WasmPlugin, spec: `{url: file:///p.wasm, verificationKey: a}`,
			refused: []string{
				"spec.verificationKey: is not served yet: nobody would verify the module by it. Leave it out, and give sha256",
			}},
		{name: "faulty", kind: schema.WasmPlugin, spec: `
			url: ftp://a
			sha256: abc
			match: [{ports: [{number: 0}]}]
			vmConfig: {env: [{name: A}, {name: A, valueFrom: HOST, value: b}, {}]}`,
			refused: []string{
				noModule,
				`spec.sha256: must be 64 hexadecimal digits, is "abc"`,
				"spec.match[0].ports[0].number: must be a port from 1 to 65535, is 0",
				"spec.vmConfig.env[1].value: does not go with valueFrom HOST: leave it out",
				"spec.vmConfig.env[2].name: is missing",
				`spec.vmConfig.env[1].name: "A" is set twice, also at spec.vmConfig.env[0].name`,
			}},
		{name: "without a URL", kind: schema.WasmPlugin, spec: `{}`,
			refused: []string{
				"spec.url: is missing",
			}},
		{name: "of an image", kind: schema.WasmPlugin, spec: `{url: "oci://a/b"}`, refused: []string{noModule}},
		{name: "of an image without a scheme", kind: schema.WasmPlugin, spec: `{url: ghcr.io/a/b:1}`, refused: []string{noModule}},
		{name: "without a sum", kind: schema.WasmPlugin, spec: `{url: "http://a.example/b"}`,
			refused: []string{
				"spec.sha256: is needed with http and https: servers fetch the module once and send only what has this sum; write what sha256sum says of the module",
			}},
		{name: "of a relative file", kind: schema.WasmPlugin, spec: `{url: file://p.wasm}`,
			refused: []string{
				"spec.url: must be file:// and an absolute path on the machine of the proxy, such as file:///etc/envoy/plugin.wasm",
			}},
		{name: "with a password", kind: schema.WasmPlugin, spec: `{url: "https://a:b@c.example/d", sha256: ec757060a4717f079363f6d1c96e04a83793174806fc5db3a230e6ab83c28fbb}`,
			refused: []string{
				"spec.url: has a user or password, which everybody could read here: serve the module without",
			}},
		{name: "sound", kind: schema.ProxyConfig, spec: `{concurrency: 0, environmentVariables: {A: b}, image: {imageType: distroless}}`,
			warned: []string{
				"spec.image has no effect here: machines have no container image",
			}},
		{name: "with the loader's variables", kind: schema.ProxyConfig, spec: `{environmentVariables: {LD_PRELOAD: x}}`,
			warned: []string{
				"spec.environmentVariables[LD_PRELOAD] has no effect: variables of loaders have programs run other code, which is for the people of the machine",
			}},
		{name: "annotated", kind: schema.WorkloadGroup, spec: `{template: {}, metadata: {annotations: {proxy.istio.io/config: "{concurrency: 2, statNameLength: 7}"}}}`,
			warned: []string{
				"spec.metadata.annotations[proxy.istio.io/config] proxyConfig.statNameLength has no effect here: Envoy does not limit the length of names",
			}},
		{name: "badly annotated", kind: schema.WorkloadGroup, spec: `{template: {}, metadata: {annotations: {proxy.istio.io/config: "{concurrency: -2}"}}}`,
			refused: []string{
				"spec.metadata.annotations[proxy.istio.io/config]: proxyConfig.concurrency: must be at least 0, is -2",
			}},
		{name: "faulty", kind: schema.ProxyConfig, spec: `{selector: {matchLabels: {"a b": c}}, concurrency: -1, environmentVariables: {"A=": b}, image: {imageType: "a b"}}`,
			refused: []string{
				`spec.selector.matchLabels[a b]: "a b" is not valid: name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character`,
				"spec.environmentVariables[A=]: is no name of a variable",
				"spec.concurrency: must not be negative, is -1",
				`spec.image.imageType: must be a word such as distroless, is "a b"`,
			},
			warned: []string{
				"spec.image has no effect here: machines have no container image",
			}},
	})
}

func TestTheSizeOfAServiceEntryIsBounded(t *testing.T) {
	t.Parallel()
	list := func(n int, format string) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, format+", ", i>>8, i&255)
		}
		return "[" + b.String() + "]"
	}
	const ports = "ports: [{number: 80, name: a, protocol: HTTP}, {number: 81, name: b, protocol: HTTP}]"
	for name, c := range map[string]struct{ spec, refused string }{
		"hosts": {`{hosts: ` + list(schema.MaxServiceHosts+1, "h%d-%d.com") + `, ` + ports + `}`,
			"spec.hosts: has 4001 hosts, and may have 4000, since all that becomes of one object is one change: split it into several objects"},
		"as many hosts as there may be": {`{hosts: ` + list(schema.MaxServiceHosts, "h%d-%d.com") + `, ` + ports + `}`, ""},
		"addresses of all hosts": {`{hosts: ` + list(1000, "h%d-%d.com") + `, addresses: ` + list(401, "10.0.%d.%d") + `, ` + ports + `}`,
			"spec.hosts: each of the 1000 hosts has all 401 addresses, 401000 in all, and 400000 are the most: split it into several objects"},
		"endpoints of all hosts": {`{hosts: ` + list(1000, "h%d-%d.com") + `, resolution: STATIC, endpoints: ` + list(201, "{address: 10.0.%d.%d}") + `, ` + ports + `}`,
			"spec.hosts: each of the 1000 hosts has all 201 endpoints for 2 ports, 402000 in all, and 400000 are the most: split it into several objects"},
		"one host of many endpoints": {`{hosts: [a.com], resolution: STATIC, endpoints: ` + list(20_000, "{address: 10.0.%d.%d}") + `, ` + ports + `}`, ""},
	} {
		refused, _ := validate(t, spec(schema.ServiceEntry, c.spec))
		if got := strings.Join(refused, "; "); got != c.refused {
			t.Errorf("%s: refused is %q, want %q", name, got, c.refused)
		}
	}
}

// TestPhaseRules: the annotation of a PeerAuthentication takes none alone.
func TestPhaseRules(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]string{
		"none": "", "nonee": `metadata.annotations[portolan.io/phase]: must be none, for a change without phases, is "nonee": leave it out for one with phases`,
	} {
		document := strings.Replace(spec(schema.PeerAuthentication, "{mtls: {mode: STRICT}}"), "namespace: shop}", "namespace: shop, annotations: {portolan.io/phase: "+value+"}}", 1)
		refused, _ := validate(t, document)
		if got := strings.Join(refused, "\n"); got != want {
			t.Errorf("%s: got %q, want %q", value, got, want)
		}
	}
}

// noModule is the fault of a WasmPlugin whose module is in an image.
const noModule = "spec.url: names an image or a scheme that is not served: take the module (plugin.wasm) out of the image, " +
	"and serve it by http or https with its sha256, or put it on the machines as file:///PATH"
