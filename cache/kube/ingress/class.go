package ingress

import (
	"fmt"

	networkingv1 "k8s.io/api/networking/v1"

	meshv1alpha1 "istio.io/api/mesh/v1alpha1"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// ClassOf returns the name of the IngressClass by which Serves decides about an Ingress. It is empty
// if the Ingress names none, or if its annotation decides.
func ClassOf(object *config.Config) string {
	name := object.Spec.(*networkingv1.IngressSpec).IngressClassName
	if _, annotated := object.Annotations[schema.IngressClassAnnotation]; annotated || name == nil {
		return ""
	}
	return *name
}

// Serves says whether an Ingress has an effect, and if not, why, as the end of a sentence about it.
// class is the IngressClass of the name ClassOf, nil if there is none. (Istio:
// shouldProcessIngressWithClass.)
func Serves(mesh *meshv1alpha1.MeshConfig, object *config.Config, class *config.Config) (why string, ok bool) {
	name, mode := ClassOf(object), mesh.GetIngressControllerMode()
	annotation, annotated := object.Annotations[schema.IngressClassAnnotation]
	switch {
	case annotated && mode == meshv1alpha1.MeshConfig_OFF:
		return "ingressControllerMode of the mesh configuration is OFF, and its class is an annotation", false
	case annotated && annotation != mesh.GetIngressClass():
		return fmt.Sprintf("its annotation %s is %q, and ingressClass of the mesh configuration is %q", schema.IngressClassAnnotation, annotation, mesh.GetIngressClass()), false
	case annotated:
		return "", true
	case name != "" && class == nil:
		return fmt.Sprintf("there is no IngressClass %s", name), false
	case name != "":
		if controller := class.Spec.(*networkingv1.IngressClassSpec).Controller; controller != schema.IngressController {
			return fmt.Sprintf("its IngressClass %s is of the controller %s", name, controller), false
		}
		return "", true
	case mode == meshv1alpha1.MeshConfig_DEFAULT:
		return "", true
	}
	return fmt.Sprintf("it names no class, and ingressControllerMode of the mesh configuration is %s", mode), false
}
