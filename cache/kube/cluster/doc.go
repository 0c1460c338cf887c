// Package cluster is the connection to one cluster of Kubernetes. A cluster is a source
// of configuration and a registry of services at once, over one client. It may be away
// at any time, also at the start.
//
//	New -> Follow (one goroutine of the caller for each resource)
//	         list and watch (the Reflector of client-go) -> Convert each object
//	         -> Batch of changes -> Handle
//
// Follow delivers a list, and then every change. After a watch that expired, and after
// an API server that was away, it lists again and delivers the difference. Nothing that
// was delivered is taken back because the cluster is away, slow or denies access.
//
//	err := cluster.Follow(ctx, c, cluster.Following[*Row]{
//		Resource: corev1.SchemeGroupVersion.WithResource("services"), Kind: "Service",
//		Convert: func(o cluster.Object) (*Row, error) { return rowOf(o.(*corev1.Service)) },
//		Handle:  func(b cluster.Batch[*Row]) { ... },
//	})
//
// Objects of the groups core, discovery.k8s.io and networking.k8s.io are those of
// k8s.io/api, and cross the wire as protobuf. All others are *unstructured.Unstructured.
// Only what Convert returns is kept. An object that it refuses keeps its last good value,
// and Cluster.Problems has it.
package cluster
