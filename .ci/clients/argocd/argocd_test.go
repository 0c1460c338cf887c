package argocd

import (
	"context"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/argoproj/gitops-engine/pkg/cache"
	"github.com/argoproj/gitops-engine/pkg/diff"
	"github.com/argoproj/gitops-engine/pkg/engine"
	"github.com/argoproj/gitops-engine/pkg/health"
	"github.com/argoproj/gitops-engine/pkg/sync"
	"github.com/argoproj/gitops-engine/pkg/sync/common"
	"github.com/argoproj/gitops-engine/pkg/utils/kube"
	"github.com/argoproj/gitops-engine/pkg/utils/tracing"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
)

// source is what a repository has, for a namespace.
const source = `
apiVersion: v1
kind: Namespace
metadata: {name: $NS, labels: {team: shop}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, namespace: $NS}
data: {color: red}
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: web, namespace: $NS}
spec:
  hosts: [web.$NS]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{number: 80, name: http, protocol: HTTP}]
  endpoints: [{address: 10.0.0.1, labels: {version: v1}}, {address: 10.0.0.2, labels: {version: v2}}]
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: web, namespace: $NS}
spec:
  host: web.$NS
  trafficPolicy: {loadBalancer: {simple: LEAST_REQUEST}, connectionPool: {tcp: {connectTimeout: 3s}}}
  subsets: [{name: v1, labels: {version: v1}}, {name: v2, labels: {version: v2}}]
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: web, namespace: $NS}
spec:
  hosts: [web.$NS]
  http:
  - match: [{uri: {prefix: /v2}}]
    timeout: 5s
    route: [{destination: {host: web.$NS, subset: v2}}]
  - route:
    - {destination: {host: web.$NS, subset: v1}, weight: 90}
    - {destination: {host: web.$NS, subset: v2}, weight: 10}
`

// defaults has fields that say their default.
const defaults = `
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: out, namespace: $NS}
spec:
  hosts: [out.example]
  location: MESH_EXTERNAL
  resolution: NONE
  ports: [{number: 80, name: http, protocol: HTTP}]
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: out, namespace: $NS}
spec:
  hosts: [out.example]
  http: [{route: [{destination: {host: out.example}, weight: 100}, {destination: {host: other.example}, weight: 0}]}]
`

const (
	// tracking is the annotation by which an application knows its objects.
	tracking = "argocd.argoproj.io/tracking-id"
	// controller is the manager as which Argo CD applies server-side.
	controller = "argocd-controller"
)

// app is an application, which a cache of the cluster follows.
type app struct {
	t         *testing.T
	namespace string
	config    *rest.Config
	kubectl   *kube.KubectlCmd
	cache     cache.ClusterCache
	engine    engine.GitOpsEngine
}

type marked struct{ by string }

func newApp(t *testing.T, namespace string) *app {
	t.Helper()
	path := os.Getenv("KUBECONFIG")
	if path == "" {
		t.Fatal("KUBECONFIG names no server")
	}
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	a := &app{t: t, namespace: namespace, config: config, kubectl: &kube.KubectlCmd{Log: klog.Background(), Tracer: tracing.NopTracer{}}}
	a.cache = cache.NewClusterCache(config, cache.SetKubectl(a.kubectl), cache.SetPopulateResourceInfoHandler(func(o *unstructured.Unstructured, _ bool) (any, bool) {
		by := o.GetAnnotations()[tracking]
		return &marked{by}, by != ""
	}))
	a.engine = engine.NewEngine(config, a.cache, engine.WithKubectl(a.kubectl))
	stop, err := a.engine.Run()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop() })
	return a
}

// resources reads documents, and marks them as those of the application.
func (a *app) resources(documents string) []*unstructured.Unstructured {
	a.t.Helper()
	all, err := kube.SplitYAML([]byte(strings.ReplaceAll(documents, "$NS", a.namespace)))
	if err != nil {
		a.t.Fatal(err)
	}
	for _, one := range all {
		annotations := one.GetAnnotations()
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[tracking] = a.namespace
		one.SetAnnotations(annotations)
	}
	return all
}

func (a *app) owns(r *cache.Resource) bool {
	info, _ := r.Info.(*marked)
	return info != nil && info.by == a.namespace
}

// sync synchronizes, and returns what it did with each object, as kind and result.
func (a *app) sync(resources []*unstructured.Unstructured, o ...sync.SyncOpt) (out []string) {
	a.t.Helper()
	ctx, cancel := context.WithTimeout(a.t.Context(), time.Minute)
	defer cancel()
	clones := make([]*unstructured.Unstructured, len(resources))
	for i, one := range resources {
		clones[i] = one.DeepCopy()
	}
	results, err := a.engine.Sync(ctx, clones, a.owns, "1", a.namespace, append(o, sync.WithPrune(true))...)
	if err != nil {
		a.t.Fatalf("%v: %v", err, results)
	}
	for _, r := range results {
		if r.Status == common.ResultCodeSyncFailed {
			a.t.Errorf("%s: %s", r.ResourceKey, r.Message)
		}
		out = append(out, r.ResourceKey.Kind+" "+string(r.Status))
	}
	slices.Sort(out)
	return out
}

// live is the object as the server has it.
func (a *app) live(o *unstructured.Unstructured) *unstructured.Unstructured {
	a.t.Helper()
	live, err := a.kubectl.GetResource(a.t.Context(), a.config, o.GroupVersionKind(), o.GetName(), o.GetNamespace())
	if err != nil {
		a.t.Fatal(err)
	}
	return live
}

// drift is what differs, as Argo CD compares in one of its ways.
func (a *app) drift(resources []*unstructured.Unstructured, o ...diff.Option) (out []string) {
	a.t.Helper()
	for _, one := range resources {
		result, err := diff.Diff(one.DeepCopy(), a.live(one), o...)
		if err != nil {
			a.t.Fatalf("%s: %v", one.GetKind(), err)
		}
		if result.Modified {
			out = append(out, one.GetKind())
			a.t.Logf("%s\nlive      %s\npredicted %s", one.GetKind(), result.NormalizedLive, result.PredictedLive)
		}
	}
	return out
}

// serverSide compares by a dry run of a server-side apply.
func (a *app) serverSide() []diff.Option {
	a.t.Helper()
	applier, cleanup, err := kube.ManageServerSideDiffDryRuns(a.config, a.cache.GetOpenAPISchema(), tracing.NopTracer{}, klog.Background(), func(string) (kube.CleanupFunc, error) { return func() {}, nil })
	if err != nil {
		a.t.Fatal(err)
	}
	a.t.Cleanup(cleanup)
	return []diff.Option{diff.WithServerSideDiff(true), diff.WithServerSideDryRunner(diff.NewK8sServerSideDryRunner(applier)), diff.WithManager(controller), diff.WithGVKParser(a.cache.GetGVKParser())}
}

// structured compares as a server-side apply merges, without asking the server.
func (a *app) structured() []diff.Option {
	return []diff.Option{diff.WithStructuredMergeDiff(true), diff.WithManager(controller), diff.WithGVKParser(a.cache.GetGVKParser())}
}

func (a *app) expectNone(way string, drift []string) {
	a.t.Helper()
	if len(drift) > 0 {
		a.t.Errorf("%s: %v differ", way, drift)
	}
}

// TestArgoCD: an application that is applied as kubectl apply does is synchronized, has no drift,
// is put right where somebody changes it, and is pruned.
func TestArgoCD(t *testing.T) {
	t.Parallel()
	a := newApp(t, "argocd")
	all := a.resources(source)
	if got := a.sync(all); len(got) != len(all) || slices.ContainsFunc(got, func(s string) bool { return !strings.HasSuffix(s, " Synced") }) {
		t.Fatalf("%v", got)
	}
	a.expectNone("three ways", a.drift(all))
	a.expectNone("on the server, after an apply of a client", a.drift(all, a.serverSide()...))

	a.patch(all, "DestinationRule", `{"spec":{"trafficPolicy":{"loadBalancer":{"simple":"RANDOM"}}}}`)
	if got := a.drift(all); !slices.Equal(got, []string{"DestinationRule"}) {
		t.Errorf("after an edit %v differ", got)
	}
	a.sync(all)
	a.expectNone("put right", a.drift(all))
	a.prunes(all)
}

// TestArgoCDServerSide: so is one with ServerSideApply=true.
func TestArgoCDServerSide(t *testing.T) {
	t.Parallel()
	a := newApp(t, "argocd-server-side")
	all, on := a.resources(source), sync.WithServerSideApply(true)
	manager := sync.WithServerSideApplyManager(controller)
	a.sync(all, on, manager)
	a.expectNone("three ways", a.drift(all))
	a.expectNone("on the server", a.drift(all, a.serverSide()...))
	a.expectNone("as it merges", a.drift(all, a.structured()...))
	a.patch(all, "DestinationRule", `{"spec":{"trafficPolicy":{"loadBalancer":{"simple":"RANDOM"}}}}`)
	if got := a.drift(all, a.serverSide()...); !slices.Equal(got, []string{"DestinationRule"}) {
		t.Errorf("after an edit %v differ", got)
	}
	a.sync(all, on, manager)
	a.expectNone("put right", a.drift(all, a.serverSide()...))
	a.prunes(all, on, manager)
}

// TestArgoCDDefaults: fields that say their default are no drift.
func TestArgoCDDefaults(t *testing.T) {
	t.Parallel()
	a := newApp(t, "argocd-defaults")
	all := a.resources(defaults)
	a.sync(all)
	a.expectNone("three ways", a.drift(all))
	a.sync(all, sync.WithServerSideApply(true), sync.WithServerSideApplyManager(controller))
	a.expectNone("on the server", a.drift(all, a.serverSide()...))
	a.expectNone("as it merges", a.drift(all, a.structured()...))
}

// TestArgoCDSecrets: nobody reads the data of a secret, so that it differs where the application
// compares by itself, and never does, whatever its value, where the server compares.
func TestArgoCDSecrets(t *testing.T) {
	t.Parallel()
	a := newApp(t, "argocd-secrets")
	all := a.resources("{apiVersion: v1, kind: Secret, metadata: {name: door, namespace: $NS}, data: {password: c3dvcmRmaXNo}}")
	a.sync(all)
	if got := a.drift(all); len(got) != 1 {
		t.Errorf("three ways: %v", got)
	}
	a.sync(all, sync.WithServerSideApply(true), sync.WithServerSideApplyManager(controller))
	a.expectNone("on the server", a.drift(all, a.serverSide()...))
	changed := a.resources("{apiVersion: v1, kind: Secret, metadata: {name: door, namespace: $NS}, data: {password: bWFja2VyZWw=}}")
	a.expectNone("on the server, of another value", a.drift(changed, a.serverSide()...))
}

// TestArgoCDHealth: kinds of Istio have no health of their own: what is there is healthy.
func TestArgoCDHealth(t *testing.T) {
	t.Parallel()
	a := newApp(t, "argocd-health")
	all := a.resources(source)
	a.sync(all)
	for _, one := range all {
		if got, err := health.GetResourceHealth(a.live(one), nil); err != nil || got != nil && got.Status != health.HealthStatusHealthy {
			t.Errorf("%s: %+v, %v", one.GetKind(), got, err)
		}
	}
}

// patch changes an object as kubectl edit does.
func (a *app) patch(all []*unstructured.Unstructured, kind, patch string) {
	a.t.Helper()
	i := slices.IndexFunc(all, func(o *unstructured.Unstructured) bool { return o.GetKind() == kind })
	if !json.Valid([]byte(patch)) || i < 0 {
		a.t.Fatalf("%s of %s", patch, kind)
	}
	if _, err := a.kubectl.PatchResource(a.t.Context(), a.config, all[i].GroupVersionKind(), all[i].GetName(), all[i].GetNamespace(), types.MergePatchType, []byte(patch)); err != nil {
		a.t.Fatal(err)
	}
}

// prunes takes the last object from the repository: it goes, and nothing else does.
func (a *app) prunes(all []*unstructured.Unstructured, o ...sync.SyncOpt) {
	a.t.Helper()
	last := all[len(all)-1]
	key := kube.GetResourceKey(last)
	if got := a.sync(all[:len(all)-1], o...); !slices.Contains(got, last.GetKind()+" Pruned") || len(got) != len(all) {
		a.t.Errorf("pruned: %v", got)
	}
	deadline := time.After(30 * time.Second)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		left := a.cache.FindResources(a.namespace, a.owns)
		if _, there := left[key]; !there {
			if len(left) == 0 {
				a.t.Error("all is pruned")
			}
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			a.t.Fatalf("%s is in the cache still", key)
		}
	}
}
