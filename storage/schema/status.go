package schema

import (
	metav1alpha1 "istio.io/api/meta/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"
	corev1 "k8s.io/api/core/v1"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema/ingressstatus"
)

// NewStatus returns an empty status as servers show it on the objects of a kind: a message, or a
// pointer to a Go struct for Kubernetes' own kinds; nil for those of them that have none.
func NewStatus(kind config.GroupVersionKind) any {
	switch {
	case kind.Group == ServiceEntry.Group && kind.Kind == ServiceEntry.Kind:
		return &networking.ServiceEntryStatus{}
	case kind.Group == Ingress.Group && kind.Kind == Ingress.Kind:
		return &ingressstatus.IngressStatus{}
	case kind.Group == Namespace.Group && kind.Kind == Namespace.Kind:
		return &corev1.NamespaceStatus{}
	case sideKinds.Kind(kind) != nil:
		return nil
	}
	return &metav1alpha1.IstioStatus{}
}

var sideKinds = Side()
