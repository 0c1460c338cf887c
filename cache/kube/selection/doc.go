// Package selection is about which namespaces of clusters of Kubernetes count. MeshConfig's
// discoverySelectors say that by the labels of Namespaces.
//
//	Selectors    the discoverySelectors, as the mesh configuration has them now
//	Selection    which namespaces of one cluster they match (cluster.Cluster.FollowSelection)
//	Moved        what comes and goes when a Selection changes
//
// As in Istio the root namespace counts only if a selector matches it, and what has no namespace
// always counts (Istio: pkg/kube/namespace/filter.go).
package selection
