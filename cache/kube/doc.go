// Package kube is the read-only cache of the Istio objects of a cluster of Kubernetes, and of its
// Ingresses.
//
//	discovery (which kinds, which version) -> cluster.Follow of each kind
//	  -> decode -> Cache.handle -> Feed.Publish
//
// Objects in namespaces that do not count (package selection) are kept aside: they are in no
// snapshot until their namespace counts (select.go).
//
// A kind is read in the newest version that the cluster serves. A kind whose definition
// appears or goes later is followed. The first snapshot waits until every kind was
// listed, or the account has no right to it.
//
// Of a status the cache reads the health of a WorkloadEntry alone, which snapshots have beside their
// objects (health.go). Other changes of a status are none here.
//
// A fault removes nothing. An object that cannot be decoded, or that the cluster accepts
// and Portolan does not, keeps its last good content, and Cache.Problems has it. While
// the cluster is away its last objects are served, and Cache.Degraded says so. At a start
// these are the objects that Options.Recall returns. The cache asks the cluster for nothing
// before it has them, so a refusal that comes early takes none of them.
//
// StatusWriter writes what became of the objects into their statuses in the cluster.
package kube
