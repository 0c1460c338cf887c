// Package fieldmanager keeps the managed fields of objects: who has set which field, for
// server-side apply. Kubernetes' own library merges, finds conflicts and writes the managed
// fields (k8s.io/apimachinery/pkg/util/managedfields).
//
// An object has no managed fields until somebody applies it server-side. Until then nobody
// computes or stores anything. The first apply gives what the object has by then to the
// manager "before-first-apply", as in Kubernetes.
package fieldmanager
