package side

import (
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	runtimeschema "k8s.io/apimachinery/pkg/runtime/schema"
)

// Types has the types of Kubernetes' own kinds that are served, Secret and Ingress too, and the options of
// deletions. These alone have protobuf and strategic merge patches. All others are custom resources,
// which have neither, as in Kubernetes.
var Types = func() *runtime.Scheme {
	out := runtime.NewScheme()
	out.AddKnownTypes(corev1.SchemeGroupVersion, &corev1.Secret{}, &corev1.SecretList{}, &corev1.ConfigMap{}, &corev1.ConfigMapList{},
		&corev1.Namespace{}, &corev1.NamespaceList{}, &corev1.Event{}, &corev1.EventList{})
	out.AddKnownTypes(coordinationv1.SchemeGroupVersion, &coordinationv1.Lease{}, &coordinationv1.LeaseList{})
	out.AddKnownTypes(eventsv1.SchemeGroupVersion, &eventsv1.Event{}, &eventsv1.EventList{})
	out.AddKnownTypes(networkingv1.SchemeGroupVersion, &networkingv1.Ingress{}, &networkingv1.IngressList{}, &networkingv1.IngressClass{}, &networkingv1.IngressClassList{})
	for _, group := range []runtimeschema.GroupVersion{{Version: "v1"}, metav1.SchemeGroupVersion} {
		out.AddKnownTypes(group, &metav1.DeleteOptions{})
	}
	return out
}()
