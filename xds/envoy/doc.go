// Package envoy makes Envoy messages. Small constructors turn a plain Options struct
// into a cluster, a load assignment, a route configuration, a listener or a filter;
// packages upstream, socket and accesslog beside it make clusters, transport sockets and
// access logs. Only these packages spell out the protocol buffers of Envoy, so that the
// generators can describe their purpose. They know nothing of services, configuration or the mesh, and
// import nothing of Portolan but package names.
//
// A constructor is a pure function: equal options make messages of equal bytes (maps
// are sorted). A stock Envoy 1.40 accepts every message without a warning about
// deprecated fields. The zero value of an option is Istio's default, or Envoy's if
// Istio has none. Strings must be valid UTF-8, as everything is that was decoded from
// protocol buffers, JSON or YAML.
//
// By resource: [upstream.Cluster] (with [upstream.Endpoints] inside where there is no EDS),
// [upstream.LoadAssignment], [RouteConfig] of [VirtualHost] of [RouteOptions],
// [Listener] of [FilterChain] of [HTTPConnectionManager] or [TCPProxy]. A
// minimal listener that forwards everything to one cluster:
//
//	cluster := names.Cluster(names.Outbound, 80, "", "web.example.com")
//	envoy.Listener(envoy.ListenerOptions{
//		Name: names.Listener("127.0.0.1", 8080), Host: "127.0.0.1", Port: 8080,
//		FilterChains: []*listenerv3.FilterChain{envoy.FilterChain(envoy.FilterChainOptions{
//			Filters: []*listenerv3.Filter{envoy.TCPProxy(envoy.TCPProxyOptions{
//				StatPrefix: cluster, Clusters: []envoy.WeightedCluster{{Name: cluster}},
//			})},
//		})},
//	})
package envoy
