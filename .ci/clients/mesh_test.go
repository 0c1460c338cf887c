package clients

import (
	"context"
	"os"
	"testing"
	"time"

	networkingv1 "istio.io/api/networking/v1alpha3"
	istiov1 "istio.io/client-go/pkg/apis/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// known is the scheme with the kinds of Kubernetes and of Istio's networking.
var known = func() *runtime.Scheme {
	s := runtime.NewScheme()
	utilruntime.Must(scheme.AddToScheme(s))
	utilruntime.Must(istiov1.AddToScheme(s))
	return s
}()

func init() { ctrl.SetLogger(klog.Background()) }

// config is how to reach the server that KUBECONFIG names.
func config(t *testing.T) *rest.Config {
	t.Helper()
	path := os.Getenv("KUBECONFIG")
	if path == "" {
		t.Fatal("KUBECONFIG names no server")
	}
	c, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		t.Fatal(err)
	}
	c.QPS = -1
	return c
}

// direct is a client of controller-runtime that reads from the server.
func direct(t *testing.T) client.Client {
	t.Helper()
	c, err := client.New(config(t), client.Options{Scheme: known})
	must(t, err)
	return c
}

// must ends a test on an error.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// eventually waits until a condition holds, for at most half a minute.
func eventually(t *testing.T, what string, holds func(context.Context) bool) {
	t.Helper()
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	limit := time.After(30 * time.Second)
	for !holds(t.Context()) {
		select {
		case <-ticker.C:
		case <-limit:
			t.Fatalf("it did not come to pass that %s", what)
		}
	}
}

// route is a VirtualService that sends what is for a host to another one.
func route(namespace, name, destination string) *istiov1.VirtualService {
	return &istiov1.VirtualService{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"app": name}},
		Spec: networkingv1.VirtualService{
			Hosts: []string{name + "." + namespace},
			Http: []*networkingv1.HTTPRoute{{Route: []*networkingv1.HTTPRouteDestination{{
				Destination: &networkingv1.Destination{Host: destination},
			}}}},
		},
	}
}

// service is a ServiceEntry with one endpoint.
func service(namespace, name, address string) *istiov1.ServiceEntry {
	return &istiov1.ServiceEntry{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: networkingv1.ServiceEntry{
			Hosts: []string{name + "." + namespace}, Location: networkingv1.ServiceEntry_MESH_INTERNAL, Resolution: networkingv1.ServiceEntry_STATIC,
			Ports:     []*networkingv1.ServicePort{{Number: 80, Name: "http", Protocol: "HTTP"}},
			Endpoints: []*networkingv1.WorkloadEntry{{Address: address}},
		},
	}
}

// rule is a DestinationRule of a host that says nothing else.
func rule(namespace, name, host string) *istiov1.DestinationRule {
	return &istiov1.DestinationRule{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       networkingv1.DestinationRule{Host: host},
	}
}

// content is an object as what it says in JSON, without what servers say.
func content(o runtime.Object) *unstructured.Unstructured {
	said, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	utilruntime.Must(err)
	unstructured.RemoveNestedField(said, "status")
	unstructured.RemoveNestedField(said, "metadata", "creationTimestamp")
	out := &unstructured.Unstructured{Object: said}
	kinds, _, err := known.ObjectKinds(o)
	utilruntime.Must(err)
	out.SetGroupVersionKind(kinds[0])
	return out
}

// applied is what a server-side apply of an object sends.
func applied(o runtime.Object) runtime.ApplyConfiguration {
	return client.ApplyConfigurationFromUnstructured(content(o))
}
