// Package kube is the registry of clusters of Kubernetes: it turns Services, EndpointSlices, Pods
// and Nodes into services and endpoints. Each cluster is one Registry, and Clusters has what
// they share.
//
// The path of a change:
//
//	strip                       keeps what the registry uses of an object
//	Registry.Set, Delete        wait in the inbox until the worker takes them
//	Registry.drain              a task: known has the objects, and marks what differs. Those in
//	                            namespaces that do not count are kept aside (select.go)
//	Clusters.flush              as the task ends: rebuilds each marked service once
//	discovery.Index.Publish     publishes the rows that differ
//
// A Service selects WorkloadEntries of its namespace beside pods (WorkloadInstanceHandler), and
// ServiceEntries select pods, of which the registry tells its workload handlers.
package kube
