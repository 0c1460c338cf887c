// Package cluster generates clusters. There is one for every port of every service that
// the proxy sees, and for every subset of it. Further ones are for the ports on which
// requests come in to a sidecar's workload (Inbound), and for unknown destinations.
//
// [Find] returns the service, port and subset of a cluster's name; the endpoint generator
// uses it too. [Names] yields the clusters that a change may add or remove. policy.go
// turns traffic policies into cluster options. If the proxy resolves endpoints itself,
// they are part of the cluster; otherwise they are a separate resource that the cluster
// needs.
package cluster
