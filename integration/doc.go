// Package integration has the scenarios that run against the real programs: the binary as users
// run it, its etcd, and Envoy. Every scenario starts what it needs on loopback and free ports,
// and ends it again. If one fails, the logs of its processes are kept, and the test prints
// their directory.
//
// main_test.go builds the binary, and processtest runs processes: servers (server_test.go) and
// Envoys (envoy_test.go). Traffic goes to the upstreams of upstream_test.go; traffic_test.go
// sends and counts it. relay_test.go sits between a proxy and its server. grpc_test.go runs
// proxyless programs; grpcpeer is the one in Go. The other files are the scenarios, most of
// them in both variants of the protocol.
package integration
