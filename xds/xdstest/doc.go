// Package xdstest has helpers for tests of configuration and of its delivery.
//
// A [World] makes a mesh of YAML without a store or a server, and simulates the proxy of a
// node:
//
//	w := xdstest.NewWorld(t, documents)
//	p := w.Simulate(xdstest.Node{Type: discovery.Router})
//	got := p.Run(simulate.Request{Port: 8080, Host: "web.example.com"}).String()
//
// A Server is a whole control plane in the process of the test. Recording clients connect to
// it.
package xdstest
