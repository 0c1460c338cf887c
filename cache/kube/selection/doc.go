// Package selection is about which namespaces of clusters of Kubernetes count. MeshConfig's
// discoverySelectors say that by the labels of Namespaces.
//
//	Selectors.Set (the mesh configuration) -> Selectors.Now
//	  -> Selection of a cluster, with the labels of its Namespaces (cluster.Cluster.FollowSelection)
//	  -> Moved (each user of the cluster)
//
// As in Istio the root namespace counts only if a selector matches it, and what has no namespace
// always counts (Istio: pkg/kube/namespace/filter.go).
package selection
