// Package side has the specs of the kinds of Kubernetes' own that controllers and kubectl need
// beside the objects of the mesh, and that Kubernetes has at the top level of a document. Other
// such kinds have the spec of k8s.io/api. Nothing that proxies get depends on them.
package side
