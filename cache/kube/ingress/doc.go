// Package ingress derives Gateways and VirtualServices from the Ingresses of Kubernetes, as Istio
// does. (Istio: pilot/pkg/config/kube/ingress.)
//
//	Serves -> the Ingresses in effect; of each Gateway, and of each host VirtualService -> Derived
//
// All functions are pure. Package mesh calls them for what changed, and nothing stores what they
// return: objects, verdicts and history name the Ingress that a user wrote.
package ingress
