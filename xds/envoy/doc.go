// Package envoy makes Envoy messages: small constructors that turn a plain
// Options struct into a cluster, a load assignment, a route configuration, a
// listener or a filter, and the names that these go by. It is where the
// protocol buffers of Envoy are spelled out, so that the generators can speak
// of what they mean; it knows nothing of services, configuration or the mesh,
// and imports nothing of Portolan.
//
// A constructor is a pure function: equal options make messages of equal bytes
// (what comes from a map is sorted), and every message is one that a stock
// Envoy 1.40 accepts without a word about deprecated fields. The zero value of
// an option is Istio's default, or Envoy's where Istio has none. Strings are
// taken to be valid UTF-8, as everything is that was decoded from protocol
// buffers, JSON or YAML.
//
// By resource: [Cluster] (with [Endpoints] inside where there is no EDS),
// [LoadAssignment], [RouteConfig] of [VirtualHost] of [Route] with a [Match],
// [Listener] of [FilterChain] of [HTTPConnectionManager] or [TCPProxy]. A
// minimal listener that forwards everything to one cluster:
//
//	cluster := envoy.ClusterName(envoy.Outbound, 80, "", "web.example.com")
//	envoy.Listener(envoy.ListenerOptions{
//		Name: envoy.ListenerName("127.0.0.1", 8080), Host: "127.0.0.1", Port: 8080,
//		FilterChains: []*listenerv3.FilterChain{envoy.FilterChain(envoy.FilterChainOptions{
//			Filters: []*listenerv3.Filter{envoy.TCPProxy(envoy.TCPProxyOptions{
//				StatPrefix: cluster, Clusters: []envoy.WeightedCluster{{Name: cluster}},
//			})},
//		})},
//	})
package envoy
