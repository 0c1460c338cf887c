package kube

import corev1 "k8s.io/api/core/v1"

// Tell has the registry learn of a pod, as from a watch.
func (r *Registry) Tell(p *corev1.Pod) {
	stripped := stripPod(p)
	r.told(-1, map[string]object{stripped.path(): stripped})
}
