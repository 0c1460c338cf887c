// Package remote follows the clusters of Kubernetes that Secrets of the mesh name, as `istioctl
// create-remote-secret` writes them. Such a Secret has the label istio/multiCluster: "true" and is in
// the root namespace. Each entry of its data is a cluster, by name, and has a kubeconfig.
//
//	Follower.Follow     a hook of the worker: opens the Secrets that changed, and says what is wanted
//	Follower.Run        adds, reconnects and removes registries until they are what is wanted
//	Follower.Faults     what is wrong, for verdicts on the Secrets; the registries say it as Degraded
//
// All servers take the same Secrets from their mirrors. Where a name stands twice, a flag counts
// before all Secrets, and the oldest Secret before the others (config.Compare), whatever its
// kubeconfig is worth. Nothing that this package says has a part of a kubeconfig.
package remote
