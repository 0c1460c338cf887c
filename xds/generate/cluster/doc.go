// Package cluster generates clusters: one for every port of every service that
// the proxy sees and every subset of it, those of the ports on which requests come
// in to a sidecar's workload (Inbound), and those for what is known to nobody.
//
// A name is looked up by [Find], which tells the service, port and subset that
// it stands for; the endpoint generator asks it the same question. [Names] are
// the candidates of a change. Traffic policies become cluster options in
// policy.go; where the proxy resolves endpoints by itself these are part of the
// cluster, otherwise they follow as a resource of their own, the cluster's child.
package cluster
