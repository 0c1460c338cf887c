// Command load measures a control plane under the load of many proxies, which fleet simulates.
// `make bench-push` builds it and has it measure Portolan. docs/performance.md has the figures
// and explains them.
//
// Without -address it runs `portolan serve` as a process of its own, writes the reference mesh
// (xds/xdstest/refmesh) through the config API, and goes through a grid of cells: a number of
// services, a number of proxies, a variant. In each it measures the first sync of all proxies,
// then single changes, from when a write is sent to the API until the proxies have received it.
// For some cells it also runs a server that only sends the same bytes (floor), and istio.go has
// Istio's figures. Targets derive from both (cell.go). Some cells use mutual TLS (mutual.go),
// and so does their floor. One has half of its services in a cluster of Kubernetes: an API server
// beside the store, each on an etcd of its own (kubernetes.go, cluster.go, etcd.go).
//
// With -address it simulates proxies of the mesh against any server of ADS, and prints what
// they received. -change runs a command that changes something.
//
//	bin/load -cells '^1000:50$' -reps 5
//	bin/load -address 127.0.0.1:15010 -proxies 200 -pid $(pgrep -x portolan)
//	bin/load -address 127.0.0.1:15010 -change 'portolan apply -f vs.yaml' -mark tenant-x
//
// Times mean little while the machine does other work: processor time and bytes hardly depend
// on it.
package main
