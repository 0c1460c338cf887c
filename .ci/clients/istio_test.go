package clients

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	extensionsv1alpha1api "istio.io/api/extensions/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"
	networkingbeta "istio.io/api/networking/v1beta1"
	security "istio.io/api/security/v1beta1"
	telemetry "istio.io/api/telemetry/v1alpha1"
	apisextensions "istio.io/client-go/pkg/apis/extensions/v1alpha1"
	apisv1 "istio.io/client-go/pkg/apis/networking/v1"
	apisv1alpha3 "istio.io/client-go/pkg/apis/networking/v1alpha3"
	apisv1beta1 "istio.io/client-go/pkg/apis/networking/v1beta1"
	apissecurity "istio.io/client-go/pkg/apis/security/v1"
	apistelemetry "istio.io/client-go/pkg/apis/telemetry/v1"
	applyv1 "istio.io/client-go/pkg/applyconfiguration/networking/v1"
	"istio.io/client-go/pkg/clientset/versioned"
	"istio.io/client-go/pkg/informers/externalversions"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// typed is what Istio's client does with one kind, in a namespace.
type typed[T, L any] interface {
	Create(context.Context, T, metav1.CreateOptions) (T, error)
	Update(context.Context, T, metav1.UpdateOptions) (T, error)
	Delete(context.Context, string, metav1.DeleteOptions) error
	DeleteCollection(context.Context, metav1.DeleteOptions, metav1.ListOptions) error
	Get(context.Context, string, metav1.GetOptions) (T, error)
	List(context.Context, metav1.ListOptions) (L, error)
	Watch(context.Context, metav1.ListOptions) (watch.Interface, error)
	Patch(context.Context, string, types.PatchType, []byte, metav1.PatchOptions, ...string) (T, error)
}

// objectOf is an object of a kind.
type objectOf interface {
	runtime.Object
	metav1.Object
}

// uses does with an object of a kind what programs do, while a watch and an informer look on.
func uses[T objectOf, L runtime.Object](c typed[T, L], object T, group, version, resource string) func(*testing.T, externalversions.SharedInformerFactory) {
	return func(t *testing.T, factory externalversions.SharedInformerFactory) {
		ctx := t.Context()
		generic, err := factory.ForResource(schema.GroupVersionResource{Group: group + ".istio.io", Version: version, Resource: resource})
		must(t, err)
		seen := make(chan string, 16)
		_, err = generic.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: func(o any) { seen <- "added " + name(o) },
			UpdateFunc: func(was, is any) {
				if labels(was) != labels(is) { // not its status alone
					seen <- "updated " + name(is)
				}
			},
			DeleteFunc: func(o any) { seen <- "deleted " + name(o) },
		})
		must(t, err)
		factory.Start(ctx.Done())
		if !cache.WaitForCacheSync(ctx.Done(), generic.Informer().HasSynced) {
			t.Fatal("the informer does not sync")
		}
		w, err := c.Watch(ctx, metav1.ListOptions{})
		must(t, err)
		defer w.Stop()

		object.SetName("it")
		object.SetLabels(map[string]string{"n": "1"})
		made, err := c.Create(ctx, object, metav1.CreateOptions{FieldManager: "istio"})
		must(t, err)
		if got, want := spec(t, made), spec(t, object); got != want {
			t.Errorf("it is created as %s, not %s", got, want)
		}
		_, err = c.Patch(ctx, "it", types.MergePatchType, []byte(`{"metadata":{"labels":{"n":"2"}}}`), metav1.PatchOptions{})
		must(t, err)
		made.SetLabels(map[string]string{"n": "3"})
		if _, err := c.Update(ctx, made, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
			t.Errorf("an update of an old version: %v", err)
		}
		now, err := c.Get(ctx, "it", metav1.GetOptions{})
		must(t, err)
		now.SetLabels(map[string]string{"n": "3"})
		_, err = c.Update(ctx, now, metav1.UpdateOptions{})
		must(t, err)
		list, err := c.List(ctx, metav1.ListOptions{LabelSelector: "n=3"})
		must(t, err)
		if text, _ := json.Marshal(list); countItems(text) != 1 {
			t.Errorf("%s", text)
		}
		must(t, c.Delete(ctx, "it", metav1.DeleteOptions{}))

		for _, want := range []string{"added it", "updated it", "updated it", "deleted it"} {
			select {
			case got := <-seen:
				if got != want {
					t.Errorf("the informer has %s, not %s", got, want)
				}
			case <-time.After(30 * time.Second):
				t.Fatalf("the informer lacks %s", want)
			}
		}
		var watched []watch.EventType
		for !slices.Contains(watched, watch.Deleted) {
			select {
			case e := <-w.ResultChan():
				watched = append(watched, e.Type)
			case <-time.After(30 * time.Second):
				t.Fatalf("the watch has %v alone", watched)
			}
		}
		if watched[0] != watch.Added || !slices.Contains(watched, watch.Modified) {
			t.Errorf("the watch has %v", watched)
		}
		again := object.DeepCopyObject().(T)
		again.SetResourceVersion("")
		_, err = c.Create(ctx, again, metav1.CreateOptions{})
		must(t, err)
		must(t, c.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}))
		if _, err := c.Get(ctx, "it", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("after the deletion of all: %v", err)
		}
	}
}

// name is the name of an object, or of one that is gone.
func name(o any) string {
	if gone, is := o.(cache.DeletedFinalStateUnknown); is {
		o = gone.Obj
	}
	return o.(metav1.Object).GetName()
}

// labels is the labels of an object, for comparison.
func labels(o any) string { return fmt.Sprint(o.(metav1.Object).GetLabels()) }

// spec is the spec of an object in JSON.
func spec(t *testing.T, o any) string {
	t.Helper()
	text, err := json.Marshal(o)
	must(t, err)
	var said struct{ Spec any }
	must(t, json.Unmarshal(text, &said))
	text, err = json.Marshal(said.Spec)
	must(t, err)
	return string(text)
}

// countItems is how many objects a list in JSON has.
func countItems(text []byte) int {
	var list struct{ Items []any }
	_ = json.Unmarshal(text, &list)
	return len(list.Items)
}

// TestIstioClient: Istio's typed client, with its informers, does with each kind what it does
// in a cluster.
func TestIstioClient(t *testing.T) {
	t.Parallel()
	const ns = "istio-client"
	c, err := versioned.NewForConfig(config(t))
	must(t, err)
	v1, v1beta1, v1alpha3 := c.NetworkingV1(), c.NetworkingV1beta1(), c.NetworkingV1alpha3()
	ports := []*networking.Port{{Number: 80, Name: "http", Protocol: "HTTP"}}
	for kind, use := range map[string]func(*testing.T, externalversions.SharedInformerFactory){
		"VirtualService":         uses(v1.VirtualServices(ns), route(ns, "it", "web.shop"), "networking", "v1", "virtualservices"),
		"DestinationRule":        uses(v1.DestinationRules(ns), rule(ns, "it", "web.shop"), "networking", "v1", "destinationrules"),
		"ServiceEntry":           uses(v1.ServiceEntries(ns), service(ns, "it", "10.0.0.1"), "networking", "v1", "serviceentries"),
		"Gateway":                uses(v1.Gateways(ns), &apisv1.Gateway{Spec: networking.Gateway{Selector: map[string]string{"app": "edge"}, Servers: []*networking.Server{{Port: ports[0], Hosts: []string{"*"}}}}}, "networking", "v1", "gateways"),
		"Sidecar":                uses(v1.Sidecars(ns), &apisv1.Sidecar{Spec: networking.Sidecar{Egress: []*networking.IstioEgressListener{{Hosts: []string{"./*"}}}}}, "networking", "v1", "sidecars"),
		"WorkloadEntry":          uses(v1.WorkloadEntries(ns), &apisv1.WorkloadEntry{Spec: networking.WorkloadEntry{Address: "10.0.0.1", Labels: map[string]string{"app": "web"}}}, "networking", "v1", "workloadentries"),
		"WorkloadGroup":          uses(v1.WorkloadGroups(ns), &apisv1.WorkloadGroup{Spec: networking.WorkloadGroup{Template: &networking.WorkloadEntry{ServiceAccount: "web"}}}, "networking", "v1", "workloadgroups"),
		"EnvoyFilter":            uses(v1alpha3.EnvoyFilters(ns), &apisv1alpha3.EnvoyFilter{Spec: networking.EnvoyFilter{WorkloadSelector: &networking.WorkloadSelector{Labels: map[string]string{"app": "web"}}}}, "networking", "v1alpha3", "envoyfilters"),
		"ProxyConfig":            uses(v1beta1.ProxyConfigs(ns), &apisv1beta1.ProxyConfig{Spec: networkingbeta.ProxyConfig{EnvironmentVariables: map[string]string{"A": "b"}}}, "networking", "v1beta1", "proxyconfigs"),
		"AuthorizationPolicy":    uses(c.SecurityV1().AuthorizationPolicies(ns), &apissecurity.AuthorizationPolicy{Spec: security.AuthorizationPolicy{Action: security.AuthorizationPolicy_DENY, Rules: []*security.Rule{{From: []*security.Rule_From{{Source: &security.Source{Namespaces: []string{"bank"}}}}}}}}, "security", "v1", "authorizationpolicies"),
		"PeerAuthentication":     uses(c.SecurityV1().PeerAuthentications(ns), &apissecurity.PeerAuthentication{Spec: security.PeerAuthentication{Mtls: &security.PeerAuthentication_MutualTLS{Mode: security.PeerAuthentication_MutualTLS_PERMISSIVE}}}, "security", "v1", "peerauthentications"),
		"RequestAuthentication":  uses(c.SecurityV1().RequestAuthentications(ns), &apissecurity.RequestAuthentication{Spec: security.RequestAuthentication{JwtRules: []*security.JWTRule{{Issuer: "https://issuer.example", Jwks: `{"keys":[{"kty":"oct","k":"c2VjcmV0"}]}`}}}}, "security", "v1", "requestauthentications"),
		"Telemetry":              uses(c.TelemetryV1().Telemetries(ns), &apistelemetry.Telemetry{Spec: telemetry.Telemetry{Tracing: []*telemetry.Tracing{{Providers: []*telemetry.ProviderRef{{Name: "zipkin"}}}}}}, "telemetry", "v1", "telemetries"),
		"WasmPlugin":             uses(c.ExtensionsV1alpha1().WasmPlugins(ns), &apisextensions.WasmPlugin{Spec: extensionsv1alpha1api.WasmPlugin{Url: "file:///etc/envoy/plugin.wasm"}}, "extensions", "v1alpha1", "wasmplugins"),
		"VirtualService v1beta1": uses(v1beta1.VirtualServices("istio-client-v1beta1"), &apisv1beta1.VirtualService{Spec: networking.VirtualService{Hosts: []string{"old.shop"}, Http: route(ns, "it", "old.shop").Spec.Http}}, "networking", "v1beta1", "virtualservices"),
	} {
		namespace := ns
		if kind == "VirtualService v1beta1" {
			namespace += "-v1beta1"
		}
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			use(t, externalversions.NewSharedInformerFactoryWithOptions(c, 0, externalversions.WithNamespace(namespace)))
		})
	}
}

// TestIstioClientApplies: its apply is a server-side apply, of the fields that a program names.
func TestIstioClientApplies(t *testing.T) {
	t.Parallel()
	const ns = "istio-client-applies"
	c, err := versioned.NewForConfig(config(t))
	must(t, err)
	rules := c.NetworkingV1().DestinationRules(ns)
	apply := applyv1.DestinationRule("web", ns).WithLabels(map[string]string{"by": "program"}).WithSpec(networking.DestinationRule{Host: "web.shop"})
	made, err := rules.Apply(t.Context(), apply, metav1.ApplyOptions{FieldManager: "program"})
	must(t, err)
	again, err := rules.Apply(t.Context(), apply, metav1.ApplyOptions{FieldManager: "program"})
	must(t, err)
	if again.ResourceVersion != made.ResourceVersion || again.Labels["by"] != "program" {
		t.Errorf("the same is applied as another version: %v, then %v", made.ObjectMeta, again.ObjectMeta)
	}
	apply = applyv1.DestinationRule("web", ns).WithSpec(networking.DestinationRule{Host: "other.shop"})
	if _, err := rules.Apply(t.Context(), apply, metav1.ApplyOptions{FieldManager: "person"}); !apierrors.IsConflict(err) {
		t.Errorf("another manager: %v", err)
	}
}
