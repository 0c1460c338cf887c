// Package integration has the scenarios that run against the real things: the
// binary as users run it, its etcd, and Envoy. Every scenario starts what it
// needs on loopback and free ports and ends it again; where one fails, the logs
// of its processes stay, and their directory is named.
//
// The parts: main_test.go builds the binary, processtest runs processes,
// server_test.go and envoy_test.go are the two kinds of them,
// upstream_test.go is what traffic goes to, traffic_test.go sends and counts it,
// relay_test.go sits between a proxy and its server, grpc_test.go runs programs that
// need no proxy, of which grpcpeer is the one in Go. The other files are the
// scenarios, most of them in both variants of the protocol.
package integration
