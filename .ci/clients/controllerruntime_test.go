package clients

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"istio.io/api/meta/v1alpha1"
	istiov1 "istio.io/client-go/pkg/apis/networking/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// manager makes a manager of a namespace.
func manager(t *testing.T, namespace string, change func(*ctrl.Options)) ctrl.Manager {
	t.Helper()
	o := ctrl.Options{
		Scheme: known, Metrics: server.Options{BindAddress: "0"},
		Cache: cache.Options{DefaultNamespaces: map[string]cache.Config{namespace: {}}},
	}
	if change != nil {
		change(&o)
	}
	m, err := ctrl.NewManager(config(t), o)
	must(t, err)
	return m
}

// run runs a manager until the test ends, or until stop, which waits for its end.
func run(t *testing.T, m ctrl.Manager) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- m.Start(ctx) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("a manager ended with %v", err)
		}
	}
	t.Cleanup(stop)
	return stop
}

const managerName = "policies-of-routes"

// policies gives each VirtualService a DestinationRule for its first destination, server-side,
// and tells it by an event.
type policies struct {
	client.Client
	events events.EventRecorder
}

func (p *policies) Reconcile(ctx context.Context, r ctrl.Request) (ctrl.Result, error) {
	var vs istiov1.VirtualService
	if err := p.Get(ctx, r.NamespacedName, &vs); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	host := vs.Spec.Http[0].Route[0].Destination.Host
	rule := rule(vs.Namespace, vs.Name, host)
	rule.Labels = map[string]string{"made-by": managerName}
	if err := controllerutil.SetControllerReference(&vs, rule, p.Scheme()); err != nil {
		return ctrl.Result{}, err
	}
	if err := p.Apply(ctx, applied(rule), client.FieldOwner(managerName), client.ForceOwnership); err != nil {
		return ctrl.Result{}, fmt.Errorf("rule: %w", err)
	}
	p.events.Eventf(&vs, nil, corev1.EventTypeNormal, "RuleMade", "Make", "there is a rule for %s", host)
	return ctrl.Result{}, nil
}

// TestControllerRuntime: a manager with a cache reconciles: it sees what is made, changed and
// removed, applies server-side, puts right what others change, and tells what it does by events.
func TestControllerRuntime(t *testing.T) {
	t.Parallel()
	const ns = "controller-runtime"
	m := manager(t, ns, nil)
	p := &policies{Client: m.GetClient(), events: m.GetEventRecorder(managerName)}
	must(t, ctrl.NewControllerManagedBy(m).For(&istiov1.VirtualService{}).Owns(&istiov1.DestinationRule{}).Named(managerName).Complete(p))
	must(t, m.GetFieldIndexer().IndexField(t.Context(), &istiov1.VirtualService{}, "host", func(o client.Object) []string {
		return o.(*istiov1.VirtualService).Spec.Hosts
	}))
	c := direct(t)
	must(t, c.Create(t.Context(), route(ns, "before", "one.example")))
	stop := run(t, m)
	host := func(name string) string {
		var rule istiov1.DestinationRule
		if c.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: name}, &rule) != nil {
			return ""
		}
		return rule.Spec.Host
	}
	eventually(t, "what was there has a rule", func(context.Context) bool { return host("before") == "one.example" })

	vs := route(ns, "after", "two.example")
	must(t, c.Create(t.Context(), vs))
	eventually(t, "what is made has a rule", func(context.Context) bool { return host("after") == "two.example" })
	eventually(t, "an event tells it", func(ctx context.Context) bool {
		var list eventsv1.EventList
		must(t, c.List(ctx, &list, client.InNamespace(ns)))
		return slices.ContainsFunc(list.Items, func(e eventsv1.Event) bool {
			return e.Reason == "RuleMade" && e.Regarding.Name == "after" && e.Note == "there is a rule for two.example"
		})
	})

	before := vs.DeepCopy()
	vs.Spec.Http[0].Route[0].Destination.Host = "three.example"
	must(t, c.Patch(t.Context(), vs, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})))
	eventually(t, "the rule follows a change", func(context.Context) bool { return host("after") == "three.example" })
	before.Labels["stale"] = "yes"
	if err := c.Update(t.Context(), before); !apierrors.IsConflict(err) {
		t.Errorf("an update of an old version: %v", err)
	}

	var rule istiov1.DestinationRule
	must(t, c.Get(t.Context(), client.ObjectKeyFromObject(vs), &rule))
	if owner := metav1.GetControllerOf(&rule); owner == nil || owner.UID != vs.UID || rule.Labels["made-by"] != managerName {
		t.Errorf("%+v", rule.ObjectMeta)
	}
	rule.Spec.Host = "meddled.example"
	must(t, c.Update(t.Context(), &rule))
	eventually(t, "what somebody changed is put right", func(context.Context) bool { return host("after") == "three.example" })
	must(t, c.Delete(t.Context(), &rule))
	eventually(t, "what somebody deleted is made again", func(context.Context) bool { return host("after") == "three.example" })

	eventually(t, "the cache finds by its index", func(ctx context.Context) bool {
		var list istiov1.VirtualServiceList
		must(t, m.GetClient().List(ctx, &list, client.InNamespace(ns), client.MatchingFields{"host": "after." + ns}))
		return len(list.Items) == 1 && list.Items[0].Name == "after"
	})
	must(t, c.Delete(t.Context(), vs))
	eventually(t, "the cache forgets what is gone", func(ctx context.Context) bool {
		return apierrors.IsNotFound(m.GetClient().Get(ctx, client.ObjectKeyFromObject(vs), &istiov1.VirtualService{}))
	})
	stop()
}

// TestControllerRuntimeClient: its client without a manager: create or update, pages, metadata
// alone, dry runs, conflicts of managers, and what the server refuses.
func TestControllerRuntimeClient(t *testing.T) {
	t.Parallel()
	const ns = "controller-runtime-client"
	c := direct(t)
	ctx := t.Context()
	for i, want := range []controllerutil.OperationResult{controllerutil.OperationResultCreated, controllerutil.OperationResultNone, controllerutil.OperationResultUpdated} {
		se := content(service(ns, "web", "")) // the messages of Istio's types are none that it can compare
		got, err := controllerutil.CreateOrUpdate(ctx, c, se, func() error {
			return unstructured.SetNestedField(se.Object, content(service(ns, "web", fmt.Sprintf("10.0.0.%d", 1+i/2))).Object["spec"], "spec")
		})
		if err != nil || got != want {
			t.Errorf("round %d: %s, %v; want %s", i, got, err, want)
		}
	}
	for i := range 4 {
		must(t, c.Create(ctx, service(ns, fmt.Sprintf("s%d", i), "10.0.1.1")))
	}
	if err := c.Create(ctx, service(ns, "dry", "10.0.0.1"), client.DryRunAll); err != nil {
		t.Error(err)
	}
	if err := c.Get(ctx, client.ObjectKey{Namespace: ns, Name: "dry"}, &istiov1.ServiceEntry{}); !apierrors.IsNotFound(err) {
		t.Errorf("after a dry run: %v", err)
	}

	var names []string
	for token := ""; ; {
		var page istiov1.ServiceEntryList
		must(t, c.List(ctx, &page, client.InNamespace(ns), client.Limit(2), client.Continue(token)))
		for _, item := range page.Items {
			names = append(names, item.Name)
		}
		if token = page.Continue; token == "" {
			break
		}
	}
	if want := []string{"s0", "s1", "s2", "s3", "web"}; !slices.Equal(names, want) {
		t.Errorf("the pages have %v", names)
	}
	var metadata metav1.PartialObjectMetadataList
	metadata.SetGroupVersionKind(istiov1.SchemeGroupVersion.WithKind("ServiceEntryList"))
	must(t, c.List(ctx, &metadata, client.InNamespace(ns)))
	if len(metadata.Items) != 5 || metadata.Items[0].Name != "s0" {
		t.Errorf("%+v", metadata)
	}

	apply := func(manager, host string, options ...client.ApplyOption) error {
		return c.Apply(ctx, applied(rule(ns, "web", host)), append(options, client.FieldOwner(manager))...)
	}
	must(t, apply("first", "web.shop"))
	if err := apply("second", "other.shop"); !apierrors.IsConflict(err) {
		t.Errorf("the second manager: %v", err)
	}
	must(t, apply("second", "other.shop", client.ForceOwnership))

	vs := route(ns, "web", "web.shop")
	must(t, c.Create(ctx, vs))
	controllerutil.AddFinalizer(vs, "example.com/hold")
	if err := c.Update(ctx, vs); !apierrors.IsInvalid(err) {
		t.Errorf("a finalizer: %v", err)
	}
	if err := c.Create(ctx, vs); err == nil {
		t.Error("it is created twice")
	}
	must(t, c.DeleteAllOf(ctx, &istiov1.ServiceEntry{}, client.InNamespace(ns)))
	var left istiov1.ServiceEntryList
	must(t, c.List(ctx, &left, client.InNamespace(ns)))
	if len(left.Items) != 0 {
		t.Errorf("%d are left", len(left.Items))
	}
}

// TestControllerRuntimeStatus: a controller writes a condition of its own into the status of an
// object, by a patch and an update. It stays beside those of the servers, and the
// generation stays as it is.
func TestControllerRuntimeStatus(t *testing.T) {
	t.Parallel()
	const ns = "controller-runtime-status"
	c := direct(t)
	vs := route(ns, "web", "web.shop")
	must(t, c.Create(t.Context(), vs))
	eventually(t, "the servers have seen it", func(ctx context.Context) bool {
		must(t, c.Get(ctx, client.ObjectKeyFromObject(vs), vs))
		return condition(vs, "Accepted") == "True"
	})
	says := func(kind string) {
		vs.Status.Conditions = append(vs.Status.Conditions, &v1alpha1.IstioCondition{Type: kind, Status: "True", Reason: "Applied", Message: "it is so"})
	}
	before := vs.DeepCopy()
	says("Patched")
	must(t, c.Status().Patch(t.Context(), vs, client.MergeFrom(before)))
	eventually(t, "an update of the newest version gets through", func(ctx context.Context) bool {
		must(t, c.Get(ctx, client.ObjectKeyFromObject(vs), vs))
		says("Updated")
		err := c.Status().Update(ctx, vs)
		if err != nil && !apierrors.IsConflict(err) {
			t.Fatal(err)
		}
		return err == nil
	})
	must(t, c.Get(t.Context(), client.ObjectKeyFromObject(vs), vs))
	for _, kind := range []string{"Accepted", "Patched", "Updated"} {
		if condition(vs, kind) != "True" {
			t.Errorf("%s is %q: %v", kind, condition(vs, kind), vs.Status.Conditions)
		}
	}
	if vs.Generation != 1 {
		t.Errorf("its generation is %d", vs.Generation)
	}
}

// TestControllerRuntimeLeads: of two managers one leads, and when it stops the other does.
func TestControllerRuntimeLeads(t *testing.T) {
	t.Parallel()
	const ns = "controller-runtime-leads"
	lease, renew, retry := 4*time.Second, 3*time.Second, 200*time.Millisecond
	elects := func(o *ctrl.Options) {
		o.LeaderElection, o.LeaderElectionID, o.LeaderElectionNamespace, o.LeaderElectionReleaseOnCancel = true, managerName, ns, true
		o.LeaseDuration, o.RenewDeadline, o.RetryPeriod = &lease, &renew, &retry
	}
	one, two := manager(t, ns, elects), manager(t, ns, elects)
	stopOne := run(t, one)
	leads(t, one)
	run(t, two)
	select {
	case <-two.Elected():
		t.Fatal("both lead")
	default:
	}
	stopOne()
	leads(t, two)
}

func leads(t *testing.T, m ctrl.Manager) {
	t.Helper()
	select {
	case <-m.Elected():
	case <-time.After(30 * time.Second):
		t.Fatal("it does not lead")
	}
}

// condition is the status of a condition of a VirtualService, empty if it has none.
func condition(vs *istiov1.VirtualService, kind string) string {
	for _, c := range vs.Status.Conditions {
		if c.Type == kind {
			return c.Status
		}
	}
	return ""
}
