// Package clients has what controllers, GitOps tools and programs use against Kubernetes speak to
// a Portolan: their own libraries, of pinned versions, unchanged. It is a module of its own, since
// these libraries are large and nothing else here needs them.
//
// The tests speak to the server that KUBECONFIG names. `make api-clients` compiles them into
// .tools/, and TestAPIClients of the integration tests runs them against a server that it starts.
package clients
