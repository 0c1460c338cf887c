package integration

import (
	"encoding/json"
	"fmt"
	"testing"
)

// trafficRow is a feature of Services or Ingresses of a cluster: what a user writes into the cluster,
// the pods that serve, and who answers the requests. Its steps run one after the other.
type trafficRow struct {
	name    string
	objects string // kubectl applies them
	pods    []trafficPod
	steps   []trafficStep
	// then is what is true of the cluster after the steps, nil for nothing.
	then func(x *trafficScene, t *testing.T)
}

// trafficStep changes something, and then expects these answers through the proxies of both variants.
type trafficStep struct {
	// cluster and store are objects that kubectl and portolan apply.
	cluster, store string
	// gone is the name of a pod that is not ready from now on, empty for none.
	gone  string
	calls []trafficCall
}

// trafficCall is a request through a proxy. An answer is the name of the upstream, a status, or "closed".
// The name of an upstream is that of its pod. At the IPv6 address of the pod it ends with "/6".
type trafficCall struct {
	// to is a URL. With tcp: the answer is the greeting of a server that speaks first.
	to   string
	host string // of an HTTP request; empty for that of the URL
	// edge says that a client outside of the cluster calls the gateway at its external address, which
	// stands for $edge.
	edge bool
	// proto says that the answer has the version of HTTP by which the upstream was called.
	proto bool
	// want are all that answer. Each has its share: an equal one, unless percent is that of the first.
	want    []string
	percent int
}

const clusterDomain = ".shop.svc.cluster.local"

// trafficRows are the rows. A sidecar on the node n1 in the zone a is the client, and may call nothing
// but services of the mesh.
var trafficRows = []trafficRow{
	{
		name: "headless",
		objects: `
apiVersion: v1
kind: Service
metadata: {name: db, namespace: shop}
spec: {clusterIP: None, selector: {app: db}, ports: [{name: tcp, port: 5432}]}
---
apiVersion: v1
kind: Service
metadata: {name: peers, namespace: shop}
spec: {clusterIP: None, selector: {app: peers}, ports: [{name: http, port: 8080}]}
`,
		pods: []trafficPod{
			{name: "db-1", app: "db", ip: "10.1.0.11", ports: "tcp=5432/tcp"}, {name: "db-2", app: "db", ip: "10.1.0.12", ports: "tcp=5432/tcp"},
			{name: "stray", app: "stray", behind: "nothing", ip: "10.1.0.13", ports: "tcp=5432/tcp"},
			{name: "peer-1", app: "peers", ip: "10.1.0.14", ports: "http=8080"}, {name: "peer-2", app: "peers", ip: "10.1.0.15", ports: "http=8080"},
		},
		steps: []trafficStep{
			{calls: []trafficCall{
				{to: "tcp://10.1.0.11:5432", want: []string{"db-1"}}, {to: "tcp://10.1.0.12:5432", want: []string{"db-2"}}, {to: "tcp://10.1.0.13:5432", want: []string{"closed"}},
				{to: "http://10.1.0.14:8080/", host: "peers" + clusterDomain, want: []string{"peer-1"}}, {to: "http://10.1.0.15:8080/", host: "peers" + clusterDomain, want: []string{"peer-2"}},
			}},
		},
	},
	{
		name: "dual stack",
		objects: `
apiVersion: v1
kind: Service
metadata: {name: both, namespace: shop}
spec:
  ipFamilyPolicy: RequireDualStack
  ipFamilies: [IPv4, IPv6]
  clusterIP: 10.96.1.20
  clusterIPs: [10.96.1.20, "fd00:10:96::20"]
  selector: {app: both}
  ports: [{name: tcp, port: 5432}, {name: http, port: 80, targetPort: 8080}]
---
apiVersion: v1
kind: Service
metadata: {name: sixth, namespace: shop}
spec:
  ipFamilyPolicy: RequireDualStack
  ipFamilies: [IPv6, IPv4]
  clusterIP: "fd00:10:96::21"
  clusterIPs: ["fd00:10:96::21", 10.96.1.21]
  selector: {app: sixth}
  ports: [{name: tcp, port: 5432}, {name: http, port: 80, targetPort: 8080}]
`,
		pods: []trafficPod{
			{name: "both-1", app: "both", ip: "10.1.0.21", ip6: "fd00:1::21", ports: "tcp=5432/tcp http=8080"},
			{name: "sixth-1", app: "sixth", ip: "10.1.0.22", ip6: "fd00:1::22", ports: "tcp=5432/tcp http=8080"},
		},
		steps: []trafficStep{
			{calls: []trafficCall{
				{to: "tcp://10.96.1.20:5432", want: []string{"both-1"}}, {to: "tcp://[fd00:10:96::20]:5432", want: []string{"both-1"}},
				{to: "http://10.96.1.20/", want: []string{"both-1"}}, {to: "http://[fd00:10:96::20]/", want: []string{"both-1"}},
				{to: "tcp://10.96.1.21:5432", want: []string{"sixth-1/6"}}, {to: "tcp://[fd00:10:96::21]:5432", want: []string{"sixth-1/6"}},
				{to: "http://10.96.1.21/", want: []string{"sixth-1/6"}}, {to: "http://[fd00:10:96::21]/", want: []string{"sixth-1/6"}},
			}},
		},
	},
	{
		name: "a pod with two addresses",
		objects: `
apiVersion: v1
kind: Service
metadata: {name: four, namespace: shop}
spec: {ipFamilies: [IPv4], clusterIP: 10.96.1.30, selector: {app: two}, ports: [{name: http, port: 80, targetPort: 8080}]}
---
apiVersion: v1
kind: Service
metadata: {name: six, namespace: shop}
spec: {ipFamilies: [IPv6], clusterIP: "fd00:10:96::30", selector: {app: two}, ports: [{name: http, port: 80, targetPort: 8080}]}
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: six, namespace: shop}
spec: {host: six.shop.svc.cluster.local, subsets: [{name: v1, labels: {version: v1}}]}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: six, namespace: shop}
spec:
  hosts: [six.shop.svc.cluster.local]
  http:
  - match: [{uri: {prefix: /v1}}]
    route: [{destination: {host: six.shop.svc.cluster.local, subset: v1}}]
  - route: [{destination: {host: six.shop.svc.cluster.local}}]
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: two, namespace: shop}
spec:
  hosts: [two.example]
  addresses: [10.97.0.30]
  location: MESH_INTERNAL
  resolution: STATIC
  workloadSelector: {labels: {app: two}}
  ports: [{number: 80, name: http, protocol: HTTP, targetPort: 8080}]
`,
		pods: []trafficPod{
			{name: "two-1", app: "two", behind: "four/IPv4 six/IPv6", version: "v1", ip: "10.1.0.31", ip6: "fd00:1::31", ports: "http=8080"},
			{name: "two-2", app: "two", behind: "four/IPv4 six/IPv6", version: "v2", ip: "10.1.0.32", ip6: "fd00:1::32", ports: "http=8080"},
		},
		steps: []trafficStep{
			{calls: []trafficCall{
				{to: "http://10.96.1.30/", want: []string{"two-1", "two-2"}}, {to: "http://[fd00:10:96::30]/", want: []string{"two-1/6", "two-2/6"}},
				{to: "http://[fd00:10:96::30]/v1", want: []string{"two-1/6"}}, {to: "http://10.97.0.30/", host: "two.example", want: []string{"two-1", "two-2"}},
			}},
		},
	},
	{
		name: "a named targetPort",
		objects: `
apiVersion: v1
kind: Service
metadata: {name: named, namespace: shop}
spec: {clusterIP: 10.96.1.40, selector: {app: named}, ports: [{name: http, port: 80, targetPort: web}]}
`,
		pods: []trafficPod{
			{name: "named-1", app: "named", ip: "10.1.0.41", ports: "http=8080"}, {name: "named-2", app: "named", ip: "10.1.0.42", ports: "http=8081"},
			{name: "machine", behind: "nothing", ip: "10.1.0.43", ports: "http=8082"}, {name: "unnamed", behind: "nothing", ip: "10.1.0.44", ports: "http=80"},
		},
		steps: []trafficStep{
			{calls: []trafficCall{{to: "http://10.96.1.40/", want: []string{"named-1", "named-2"}}}},
			{
				store: `
apiVersion: networking.istio.io/v1
kind: WorkloadEntry
metadata: {name: unnamed, namespace: shop}
spec: {address: 10.1.0.44, labels: {app: named}, ports: {other: 80}}
---
apiVersion: networking.istio.io/v1
kind: WorkloadEntry
metadata: {name: machine, namespace: shop}
spec: {address: 10.1.0.43, labels: {app: named}, ports: {web: 8082}}
`,
				calls: []trafficCall{{to: "http://10.96.1.40/", want: []string{"named-1", "named-2", "machine"}}},
			},
		},
	},
	{
		name: "TCP at the addresses of Services",
		objects: `
apiVersion: v1
kind: Service
metadata: {name: ledger, namespace: shop}
spec: {clusterIP: 10.96.1.50, selector: {app: ledger}, ports: [{name: tcp, port: 5433}]}
---
apiVersion: v1
kind: Service
metadata: {name: audit, namespace: shop}
spec: {clusterIP: 10.96.1.51, selector: {app: audit}, ports: [{name: tcp, port: 5433}]}
`,
		pods: []trafficPod{
			{name: "ledger-1", app: "ledger", ip: "10.1.0.51", ports: "tcp=5433/tcp"}, {name: "ledger-2", app: "ledger", ip: "10.1.0.52", ports: "tcp=5433/tcp"},
			{name: "audit-1", app: "audit", ip: "10.1.0.53", ports: "tcp=5433/tcp"},
		},
		steps: []trafficStep{
			{calls: []trafficCall{
				{to: "tcp://10.96.1.50:5433", want: []string{"ledger-1", "ledger-2"}}, {to: "tcp://10.96.1.51:5433", want: []string{"audit-1"}},
				{to: "tcp://10.96.1.52:5433", want: []string{"closed"}}, {to: "tcp://10.1.0.53:5433", want: []string{"closed"}},
			}},
		},
	},
	{
		name: "internalTrafficPolicy Local",
		objects: `
apiVersion: v1
kind: Service
metadata: {name: local, namespace: shop}
spec: {internalTrafficPolicy: Local, clusterIP: 10.96.1.60, selector: {app: local}, ports: [{name: http, port: 80, targetPort: 8080}]}
`,
		pods: []trafficPod{
			{name: "local-1", app: "local", node: "n1", ip: "10.1.0.61", ports: "http=8080"}, {name: "local-2", app: "local", node: "n2", ip: "10.1.0.62", ports: "http=8080"},
			{name: "local-3", app: "local", node: "n3", ip: "10.1.0.63", ports: "http=8080"},
		},
		steps: []trafficStep{
			{calls: []trafficCall{{to: "http://10.96.1.60/", want: []string{"local-1"}}}},
			{gone: "local-1", calls: []trafficCall{{to: "http://10.96.1.60/", want: []string{"503"}}}},
			{
				cluster: "{apiVersion: v1, kind: Service, metadata: {name: local, namespace: shop}, spec: {internalTrafficPolicy: Cluster, clusterIP: 10.96.1.60, selector: {app: local}, ports: [{name: http, port: 80, targetPort: 8080}]}}",
				calls:   []trafficCall{{to: "http://10.96.1.60/", want: []string{"local-2", "local-3"}}},
			},
		},
	},
	{
		name: "traffic distribution",
		objects: `
apiVersion: v1
kind: Service
metadata: {name: near, namespace: shop}
spec: {trafficDistribution: PreferSameZone, clusterIP: 10.96.1.70, selector: {app: near}, ports: [{name: http, port: 80, targetPort: 8080}]}
---
apiVersion: v1
kind: Service
metadata: {name: nearest, namespace: shop}
spec: {trafficDistribution: PreferSameNode, clusterIP: 10.96.1.71, selector: {app: near}, ports: [{name: http, port: 80, targetPort: 8080}]}
---
apiVersion: v1
kind: Service
metadata: {name: annotated, namespace: shop, annotations: {networking.istio.io/traffic-distribution: PreferClose}}
spec: {clusterIP: 10.96.1.72, selector: {app: near}, ports: [{name: http, port: 80, targetPort: 8080}]}
---
apiVersion: v1
kind: Service
metadata: {name: anywhere, namespace: shop}
spec: {clusterIP: 10.96.1.73, selector: {app: near}, ports: [{name: http, port: 80, targetPort: 8080}]}
`,
		pods: []trafficPod{
			{name: "near-1", app: "near", behind: "near/IPv4 nearest/IPv4 annotated/IPv4 anywhere/IPv4", node: "n1", ip: "10.1.0.71", ports: "http=8080"},
			{name: "near-2", app: "near", behind: "near/IPv4 nearest/IPv4 annotated/IPv4 anywhere/IPv4", node: "n2", ip: "10.1.0.72", ports: "http=8080"},
			{name: "near-3", app: "near", behind: "near/IPv4 nearest/IPv4 annotated/IPv4 anywhere/IPv4", node: "n3", ip: "10.1.0.73", ports: "http=8080"},
		},
		steps: []trafficStep{
			{calls: []trafficCall{
				{to: "http://10.96.1.70/", want: []string{"near-1", "near-3"}}, {to: "http://10.96.1.71/", want: []string{"near-1"}},
				{to: "http://10.96.1.72/", want: []string{"near-1", "near-3"}}, {to: "http://10.96.1.73/", want: []string{"near-1", "near-2", "near-3"}},
			}},
			// Half of the zone is not ready: Envoy's overprovisioning factor of 140 % leaves 70 % of the requests there.
			{gone: "near-1", calls: []trafficCall{{to: "http://10.96.1.70/", want: []string{"near-3", "near-2"}, percent: 70}, {to: "http://10.96.1.71/", want: []string{"near-3"}}}},
			{gone: "near-3", calls: []trafficCall{{to: "http://10.96.1.70/", want: []string{"near-2"}}, {to: "http://10.96.1.71/", want: []string{"near-2"}}}},
		},
	},
	{
		name: "zones of nodes",
		objects: `
apiVersion: v1
kind: Service
metadata: {name: zoned, namespace: shop}
spec: {clusterIP: 10.96.1.80, selector: {app: zoned}, ports: [{name: http, port: 80, targetPort: 8080}]}
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: zoned, namespace: shop}
spec:
  host: zoned.shop.svc.cluster.local
  trafficPolicy: {loadBalancer: {localityLbSetting: {distribute: [{from: eu/a/*, to: {eu/a/*: 20, eu/b/*: 80}}]}}}
`,
		pods: []trafficPod{
			{name: "zoned-1", app: "zoned", node: "n4", ip: "10.1.0.81", ports: "http=8080"}, {name: "zoned-2", app: "zoned", node: "n5", ip: "10.1.0.82", ports: "http=8080"},
		},
		steps: []trafficStep{
			{cluster: nodeIn("n4", "a") + "---" + nodeIn("n5", "b"), calls: []trafficCall{{to: "http://10.96.1.80/", want: []string{"zoned-1", "zoned-2"}, percent: 20}}},
			{cluster: nodeIn("n4", "b") + "---" + nodeIn("n5", "a"), calls: []trafficCall{{to: "http://10.96.1.80/", want: []string{"zoned-1", "zoned-2"}, percent: 80}}},
		},
	},
	{
		name: "appProtocol",
		objects: `
apiVersion: v1
kind: Service
metadata: {name: protocols, namespace: shop}
spec:
  clusterIP: 10.96.1.90
  selector: {app: protocols}
  ports: [{name: h2c, port: 80, appProtocol: http}, {name: data, port: 81, appProtocol: kubernetes.io/h2c}, {name: http-raw, port: 82, appProtocol: tcp}]
`,
		pods: []trafficPod{{name: "protocols-1", app: "protocols", ip: "10.1.0.91", ports: "h2c=80 data=81 http-raw=82/tcp"}},
		steps: []trafficStep{
			{calls: []trafficCall{
				{to: "http://10.96.1.90/", proto: true, want: []string{"protocols-1 HTTP/1.1"}}, {to: "http://10.96.1.90:81/", proto: true, want: []string{"protocols-1 HTTP/2.0"}},
				{to: "tcp://10.96.1.90:82", want: []string{"protocols-1"}},
			}},
		},
	},
	{
		name: "ExternalName",
		objects: `
apiVersion: v1
kind: Service
metadata: {name: kept, namespace: shop}
spec: {clusterIP: 10.96.1.95, selector: {app: kept}, ports: [{name: http, port: 80, targetPort: 8080}]}
---
apiVersion: v1
kind: Service
metadata: {name: moved, namespace: shop}
spec: {type: ExternalName, externalName: kept.shop.svc.cluster.local}
---
apiVersion: v1
kind: Service
metadata: {name: again, namespace: shop}
spec: {type: ExternalName, externalName: moved.shop.svc.cluster.local}
`,
		pods: []trafficPod{{name: "kept-1", app: "kept", ip: "10.1.0.95", ports: "http=8080"}},
		steps: []trafficStep{
			{calls: []trafficCall{
				{to: "http://10.96.1.95/", host: "moved" + clusterDomain, want: []string{"kept-1"}}, {to: "http://10.96.1.95/", host: "moved.shop", want: []string{"kept-1"}},
				{to: "http://10.96.1.95/", host: "again" + clusterDomain, want: []string{"kept-1"}},
			}},
			{
				cluster: "{apiVersion: v1, kind: Service, metadata: {name: moved, namespace: shop}, spec: {type: ExternalName, externalName: elsewhere.example}}",
				calls:   []trafficCall{{to: "http://10.96.1.95/", host: "moved" + clusterDomain, want: []string{"502"}}, {to: "http://10.96.1.95/", want: []string{"kept-1"}}},
			},
		},
	},
	{
		name: "exportTo",
		objects: `
apiVersion: v1
kind: Namespace
metadata: {name: other}
---
apiVersion: v1
kind: Service
metadata: {name: shown, namespace: other, annotations: {networking.istio.io/exportTo: "shop, third"}}
spec: {clusterIP: 10.96.1.100, selector: {app: shown}, ports: [{name: tcp, port: 5434}]}
---
` + hiddenService("."),
		pods: []trafficPod{
			{name: "shown-1", namespace: "other", app: "shown", ip: "10.1.0.101", ports: "tcp=5434/tcp"}, {name: "hidden-1", namespace: "other", app: "hidden", ip: "10.1.0.102", ports: "tcp=5434/tcp"},
		},
		steps: []trafficStep{
			{calls: []trafficCall{{to: "tcp://10.96.1.100:5434", want: []string{"shown-1"}}, {to: "tcp://10.96.1.101:5434", want: []string{"closed"}}}},
			{cluster: hiddenService("third"), calls: []trafficCall{{to: "tcp://10.96.1.101:5434", want: []string{"closed"}}}},
			{cluster: hiddenService("*"), calls: []trafficCall{{to: "tcp://10.96.1.101:5434", want: []string{"hidden-1"}}}},
			{cluster: hiddenService("."), calls: []trafficCall{{to: "tcp://10.96.1.101:5434", want: []string{"closed"}}}},
		},
	},
	{
		name: "pods in the network of their host",
		objects: `
apiVersion: v1
kind: Service
metadata: {name: hosted, namespace: shop}
spec: {clusterIP: 10.96.1.110, selector: {app: hosted}, ports: [{name: http, port: 80, targetPort: web}]}
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: hosted, namespace: shop}
spec: {host: hosted.shop.svc.cluster.local, subsets: [{name: v1, labels: {version: v1}}, {name: v2, labels: {version: v2}}]}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: hosted, namespace: shop}
spec:
  hosts: [hosted.shop.svc.cluster.local]
  http:
  - {match: [{uri: {prefix: /v1}}], route: [{destination: {host: hosted.shop.svc.cluster.local, subset: v1}}]}
  - {match: [{uri: {prefix: /v2}}], route: [{destination: {host: hosted.shop.svc.cluster.local, subset: v2}}]}
  - route: [{destination: {host: hosted.shop.svc.cluster.local}}]
`,
		pods: []trafficPod{
			{name: "hosted-1", app: "hosted", version: "v1", hostNetwork: true, ip: "10.1.0.111", ports: "http=8081"},
			{name: "hosted-2", app: "hosted", version: "v2", hostNetwork: true, ip: "10.1.0.111", ports: "http=8082"},
		},
		steps: []trafficStep{
			{calls: []trafficCall{
				{to: "http://10.96.1.110/", want: []string{"hosted-1", "hosted-2"}}, {to: "http://10.96.1.110/v1", want: []string{"hosted-1"}}, {to: "http://10.96.1.110/v2", want: []string{"hosted-2"}},
			}},
		},
	},
	{
		name: "an Ingress, with TLS, at external IPs",
		objects: `
apiVersion: v1
kind: Service
metadata: {name: exact, namespace: shop}
spec: {selector: {app: exact}, ports: [{name: http, port: 80, targetPort: 8080}]}
---
apiVersion: v1
kind: Service
metadata: {name: front, namespace: shop}
spec: {selector: {app: front}, ports: [{name: http, port: 80, targetPort: 8080}]}
---
apiVersion: v1
kind: Service
metadata: {name: rest, namespace: shop}
spec: {selector: {app: rest}, ports: [{name: http, port: 80, targetPort: 8080}]}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: door, namespace: shop}
spec:
  ingressClassName: istio
  tls: [{hosts: [www.shop.test], secretName: door}]
  defaultBackend: {service: {name: rest, port: {number: 80}}}
  rules:
  - host: www.shop.test
    http:
      paths:
      - {pathType: Exact, path: /exact, backend: {service: {name: exact, port: {number: 80}}}}
      - {pathType: Prefix, path: /front, backend: {service: {name: front, port: {name: http}}}}
`,
		pods: []trafficPod{
			{name: "exact-1", app: "exact", ip: "10.1.0.121", ports: "http=8080"}, {name: "front-1", app: "front", ip: "10.1.0.122", ports: "http=8080"},
			{name: "rest-1", app: "rest", ip: "10.1.0.123", ports: "http=8080"},
		},
		steps: []trafficStep{
			{calls: []trafficCall{
				{to: "http://$edge/exact", host: "www.shop.test", edge: true, want: []string{"exact-1"}}, {to: "http://$edge/exact/not", host: "www.shop.test", edge: true, want: []string{"rest-1"}},
				{to: "http://$edge/front/a", host: "www.shop.test", edge: true, want: []string{"front-1"}}, {to: "http://$edge/fronts", host: "www.shop.test", edge: true, want: []string{"rest-1"}},
				{to: "http://$edge/exact", host: "other.test", edge: true, want: []string{"rest-1"}},
				{to: "https://$edge/exact", host: "www.shop.test", edge: true, want: []string{"exact-1"}}, {to: "https://$edge/", host: "www.shop.test", edge: true, want: []string{"rest-1"}},
				{to: "https://$edge/exact", host: "other.test", edge: true, want: []string{"closed"}},
			}},
		},
		then: (*trafficScene).expectExternalIPs,
	},
}

// nodeIn is a node in a zone.
func nodeIn(name, zone string) string {
	return fill("\n{apiVersion: v1, kind: Node, metadata: {name: $name, labels: {topology.kubernetes.io/region: eu, topology.kubernetes.io/zone: $zone}}}\n", "$name", name, "$zone", zone)
}

func hiddenService(exportTo string) string {
	return fill(`
apiVersion: v1
kind: Service
metadata: {name: hidden, namespace: other, annotations: {networking.istio.io/exportTo: "$exportTo"}}
spec: {clusterIP: 10.96.1.101, selector: {app: hidden}, ports: [{name: tcp, port: 5434}]}
`, "$exportTo", exportTo)
}

// TestKubernetesTraffic: kubectl writes Services, Ingresses and Istio objects into Kubernetes' own
// server. Real requests of captured clients, and of clients outside of the cluster, reach the pods that
// each feature says and no others, by proxies of both variants.
func TestKubernetesTraffic(t *testing.T) {
	needEnvoy(t)
	needNamespaces(t)
	x := startTrafficScene(t, startKubeAPIServer(t, needKubeAPIServer(t), "--service-cluster-ip-range=10.96.0.0/16,fd00:10:96::/112"))
	for _, row := range trafficRows {
		t.Run(row.name, func(t *testing.T) { x.run(t, row) })
	}
	x.server.expectNothingRejected()
	for _, p := range x.proxies {
		p.client.expectNothingRejected()
		p.edge.expectNothingRejected()
	}
}

// expectExternalIPs waits until the status of the Ingress names the addresses that its clients call.
func (x *trafficScene) expectExternalIPs(t *testing.T) {
	t.Helper()
	eventually(t, "the Ingress has the external IPs", func() error {
		status, err := json.Marshal((&kubeCluster{t, x.cluster.kubeAPI}).get("/apis/networking.k8s.io/v1/namespaces/shop/ingresses/door").Object["status"])
		if want := `{"loadBalancer":{"ingress":[{"ip":"10.0.1.9"},{"ip":"10.0.2.9"}]}}`; err == nil && string(status) != want {
			err = fmt.Errorf("its status is %s", status)
		}
		return err
	})
}
