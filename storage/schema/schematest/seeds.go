package schematest

// seeds are good objects, with every served field set in one of them. A Drawer changes
// copies of them.
var seeds = []string{`
kind: ServiceEntry
spec:
  hosts: [h0.odd.test]
  addresses: [10.1.0.1]
  exportTo: ["*"]
  location: MESH_INTERNAL
  resolution: STATIC
  ports:
  - {number: 8080, name: http, protocol: HTTP, targetPort: 18080}
  - {number: 9090, name: grpc, protocol: GRPC}
  - {number: 9091, name: tcp, protocol: TCP}
  endpoints:
  - {address: 10.0.0.1, ports: {http: 8081}, labels: {version: v1}, locality: eu/a/1, weight: 3, network: net, serviceAccount: sa}
  - {address: "fd00::1", labels: {version: v2}, locality: us/b}
`, `
kind: ServiceEntry
spec:
  hosts: [h1.odd.test]
  resolution: DNS
  location: MESH_EXTERNAL
  ports: [{number: 8080, name: http, protocol: HTTP}, {number: 8443, name: https, protocol: HTTPS}]
  endpoints: [{address: 127.0.0.1, weight: 2, locality: eu/a}, {address: localhost, ports: {http: 8081}}]
`, `
kind: ServiceEntry
spec:
  hosts: [h2.odd.test]
  resolution: DNS_ROUND_ROBIN
  ports: [{number: 8080, name: http, protocol: HTTP2}]
  endpoints: [{address: localhost}]
`, `
kind: ServiceEntry
spec:
  hosts: ["*.dynamic.odd.test", "*.more.odd.test"]
  resolution: DYNAMIC_DNS
  location: MESH_EXTERNAL
  ports: [{number: 8080, name: http, protocol: HTTP}, {number: 8081, name: grpc, protocol: GRPC}, {number: 3128, name: proxy, protocol: HTTP_PROXY}, {number: 9444, name: tls, protocol: TLS}]
`, `
kind: ServiceEntry
spec:
  hosts: ["*.wild.odd.test"]
  addresses: [10.2.0.0/16]
  resolution: NONE
  ports: [{number: 8080, name: http, protocol: HTTP}, {number: 9000, name: tcp, protocol: TCP, targetPort: 9001}]
`, `
kind: ServiceEntry
spec:
  hosts: [h3.odd.test]
  resolution: STATIC
  workloadSelector: {labels: {app: odd}}
  ports: [{number: 8080, name: any}, {number: 9443, name: tls, protocol: TLS}, {number: 27017, name: mongo, protocol: MONGO}]
`, `
kind: ServiceEntry
spec:
  hosts: [h4.odd.test]
  resolution: STATIC
  ports: [{number: 8080, name: http, protocol: HTTP}]
  endpoints: [{address: "unix:///run/odd.sock"}]
`, `
kind: WorkloadEntry
metadata: {labels: {app: odd}}
spec: {address: 10.0.0.2, ports: {any: 8082}, labels: {app: odd, version: v1}, locality: eu/a/1, weight: 5, network: net, serviceAccount: sa}
`, `
kind: DestinationRule
spec:
  host: h0.odd.test
  exportTo: ["*"]
  trafficPolicy:
    loadBalancer: {simple: ROUND_ROBIN}
    outlierDetection: {minHealthPercent: 10}
    tls: {mode: DISABLE}
    connectionPool:
      tcp: {maxConnections: 10, connectTimeout: 1s, maxConnectionDuration: 10s, idleTimeout: 9s, tcpKeepalive: {probes: 3, time: 7s, interval: 2s}}
      http: {http1MaxPendingRequests: 5, http2MaxRequests: 6, maxRequestsPerConnection: 7, maxRetries: 8, idleTimeout: 5s, h2UpgradePolicy: UPGRADE, maxConcurrentStreams: 9}
    portLevelSettings:
    - {port: {number: 8080}, loadBalancer: {simple: RANDOM}}
  subsets:
  - {name: v1, labels: {version: v1}, trafficPolicy: {loadBalancer: {simple: LEAST_REQUEST}}}
  - {name: v2, labels: {version: v2}}
`, `
kind: DestinationRule
spec:
  host: h0.odd.test
  trafficPolicy:
    loadBalancer: {consistentHash: {httpCookie: {name: c, path: /, ttl: 5s, attributes: [{name: SameSite, value: Lax}]}, ringHash: {minimumRingSize: 100}}}
  subsets:
  - {name: v1, labels: {version: v1}, trafficPolicy: {loadBalancer: {consistentHash: {httpHeaderName: x-user, maglev: {tableSize: 251}}}}}
  - {name: v2, trafficPolicy: {loadBalancer: {consistentHash: {useSourceIp: true, minimumRingSize: 4}}}}
  - {name: v3, trafficPolicy: {loadBalancer: {consistentHash: {httpQueryParameterName: q}}, connectionPool: {http: {useClientProtocol: true}}}}
`, `
kind: VirtualService
spec:
  hosts: [h0.odd.test, other.odd.test]
  gateways: [mesh, edge]
  exportTo: ["*"]
  http:
  - name: first
    match:
    - name: one
      uri: {prefix: /a}
      scheme: {exact: http}
      method: {regex: "GET|POST"}
      authority: {prefix: h}
      headers: {x-a: {exact: v}, x-b: {regex: ".*"}, x-c: {}}
      withoutHeaders: {x-d: {prefix: p}}
      queryParams: {q: {exact: v}, r: {regex: "a+"}}
      ignoreUriCase: true
      port: 8080
      sourceLabels: {app: odd}
      sourceNamespace: odd
      statPrefix: odd
      gateways: [mesh]
    - uri: {regex: "/b/[^/]+"}
    - uri: {exact: /c}
    route:
    - {destination: {host: h0.odd.test, subset: v1, port: {number: 8080}}, weight: 30, headers: {request: {set: {x-e: v}, add: {x-f: "%START_TIME%"}, remove: [x-g]}, response: {set: {x-h: v}}}}
    - {destination: {host: h1.odd.test}, weight: 70}
    timeout: 5s
    retries: {attempts: 3, perTryTimeout: 2s, retryOn: "5xx,503", backoff: 25ms, retryIgnorePreviousHosts: true, retryRemoteLocalities: true}
    rewrite: {uri: /d, authority: other.test}
    headers: {request: {set: {x-i: v}}, response: {remove: [x-j]}}
    mirrors: [{destination: {host: h1.odd.test, subset: v2, port: {number: 8080}}, percentage: {value: 12.5}}, {destination: {host: h0.odd.test}}]
  - match: [{uri: {prefix: /r}}]
    redirect: {uri: /moved, authority: r.test, scheme: https, redirectCode: 308, port: 8443}
  - match: [{uri: {prefix: /p}}]
    redirect: {prefixRewrite: /q, derivePort: FROM_REQUEST_PORT}
  - match: [{uri: {prefix: /t}}]
    directResponse: {status: 418, body: {string: tea}}
  - match: [{uri: {prefix: /u}}]
    rewrite: {uriRegexRewrite: {match: "/u/(.*)", rewrite: "/v/\\1"}}
    mirror: {host: h0.odd.test, subset: v1}
    mirrorPercentage: {value: 5}
    corsPolicy: {allowOrigins: [{exact: "https://a.test"}, {regex: "https://.*"}], allowMethods: [GET, POST], allowHeaders: [x-a], exposeHeaders: [x-b], maxAge: 60s, allowCredentials: true, unmatchedPreflights: IGNORE}
    route: [{destination: {host: h1.odd.test}}]
`, `
kind: VirtualService
spec:
  hosts: ["*.wild.odd.test"]
  http: [{route: [{destination: {host: h0.odd.test, subset: v2}}]}]
`, `
kind: Gateway
spec:
  selector: {app: edge}
  servers:
  - {port: {number: 8080, name: http, protocol: HTTP}, hosts: ["*/h0.odd.test", other.odd.test], name: s, tls: {httpsRedirect: true}}
  - {port: {number: 8081, name: grpc, protocol: GRPC}, bind: 127.0.0.1, hosts: ["*"]}
  - {port: {number: 0, name: socket, protocol: HTTP}, bind: "unix://@odd-edge", hosts: ["*"]}
`, `
kind: Sidecar
spec:
  workloadSelector: {labels: {app: scoped}}
  outboundTrafficPolicy: {mode: ALLOW_ANY, egressProxy: {host: h0.odd.test, port: {number: 80}, subset: v1}}
  inboundConnectionPool: {http: {http2MaxRequests: 5, idleTimeout: 3s}, tcp: {maxConnections: 4, connectTimeout: 2s}}
  ingress:
  - {port: {number: 18081, protocol: HTTP, name: in}, defaultEndpoint: "127.0.0.1:18082", bind: 127.0.0.1, connectionPool: {http: {maxRequestsPerConnection: 3}}}
  - {port: {number: 18083, protocol: TCP, name: tcp}, defaultEndpoint: "unix:///run/in.sock", captureMode: NONE}
  egress:
  - {port: {number: 8085, protocol: HTTP, name: e}, bind: 127.0.0.1, captureMode: NONE, hosts: ["*/h0.odd.test"]}
  - {port: {number: 9091, protocol: TCP, name: t}, hosts: ["*/*"]}
  - {port: {number: 0, protocol: HTTP, name: s}, bind: "unix://@odd-http", hosts: ["./*"]}
  - {port: {number: 0, protocol: TCP, name: b}, bind: "unix://@odd-tcp", hosts: ["*/h0.odd.test"]}
  - {port: {number: 3128, protocol: HTTP_PROXY, name: p}, bind: 127.0.0.1, hosts: ["*/*", "~./h1.odd.test"]}
  - {hosts: ["./*", "*/*"]}
`}
