// Package argocd has the engine of Argo CD, of a pinned version, speak to a Portolan: its cache of a
// cluster, its comparisons and its synchronizations. It is a module of its own, since the engine
// wants an older Kubernetes than the other clients do.
//
// The tests speak to the server that KUBECONFIG names; see the package clients.
package argocd
