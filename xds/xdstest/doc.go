// Package xdstest has what the tests of configuration and of its delivery share.
//
// A [World] makes a mesh of YAML without a store or a server; a [Simulation] of
// what a proxy is sent takes requests through listener, filter chain, route and
// cluster to endpoints, and tells what becomes of them:
//
//	w := xdstest.NewWorld(t, documents)
//	s := w.Simulate(xdstest.Node{Type: discovery.Router})
//	got := s.Run(xdstest.Request{Port: 8080, Host: "web.example.com"}).String()
//
// A Server is a whole control plane in the process of the test, to which
// recording clients connect.
package xdstest
