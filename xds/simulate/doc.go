// Package simulate tells what an Envoy does with a request, or a gRPC client with a
// call, given the resources that the control plane sends it.
//
//	p, err := simulate.New(resources)
//	got := p.Run(simulate.Request{Port: 80, Host: "web.example.com"})
//	fmt.Println(got) // outbound|80|v1|web.example.com
//
// [New] reads listeners, routes, clusters, endpoints and configurations of filters.
// [Proxy.Run] takes a request through listener and filter chain (listener.go). It writes the path as
// the proxy does (path.go), and the headers about the client (received.go). Then come the filters
// that judge the request: for tokens (tokenfilter.go), RBAC (access.go) and external authorizers
// (ask.go). Virtual host, route and action follow (http.go) or, for TCP, a cluster. It uses no
// network and no clock: a request says when it comes, and a share of the traffic and an injected
// fault are reported with their percentages.
//
// The simulation knows the features that the generators use, and returns an error for
// any other matcher, filter or action, so that it overlooks nothing. In listeners that EnvoyFilters
// patched it passes over filters that it does not know, and the result names them ([NewPatched]).
package simulate
