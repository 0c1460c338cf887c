package clients

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fluxcd/cli-utils/pkg/kstatus/polling"
	"github.com/fluxcd/pkg/ssa"
	"github.com/fluxcd/pkg/ssa/utils"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// fluxController is what Flux's kustomize-controller calls itself.
const fluxController = "kustomize-controller"

// flux returns what Flux applies with.
func flux(t *testing.T) *ssa.ResourceManager {
	t.Helper()
	c := direct(t)
	return ssa.NewResourceManager(c, polling.NewStatusPoller(c, c.RESTMapper(), polling.Options{}), ssa.Owner{Field: fluxController, Group: "kustomize.toolkit.fluxcd.io"})
}

// fluxSource is what a repository has, for a namespace.
const fluxSource = `
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
---
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: web, namespace: $NS}
spec:
  rules: [{from: [{source: {namespaces: [$NS]}}]}]
`

// objects reads documents of a namespace.
func objects(t *testing.T, documents, namespace string) []*unstructured.Unstructured {
	t.Helper()
	all, err := utils.ReadObjects(strings.NewReader(strings.ReplaceAll(documents, "$NS", namespace)))
	must(t, err)
	return all
}

// applyAll applies as Flux does, and returns the actions by what is done.
func applyAll(t *testing.T, m *ssa.ResourceManager, all []*unstructured.Unstructured, o ssa.ApplyOptions) *ssa.ChangeSet {
	t.Helper()
	clones := make([]*unstructured.Unstructured, len(all))
	for i, one := range all {
		clones[i] = one.DeepCopy()
	}
	changes, err := m.ApplyAllStaged(t.Context(), clones, o)
	must(t, err)
	return changes
}

// allAre fails unless each change is an action, and there are as many.
func allAre(t *testing.T, changes *ssa.ChangeSet, action ssa.Action, count int) {
	t.Helper()
	if by := changes.ToGroupedMap(); len(by[action]) != count || len(by) != 1 {
		t.Errorf("not %d are %s: %v", count, action, by)
	}
}

// TestFlux: what Flux applies is created, is the same again, has no drift, becomes ready, is put
// right where somebody changes it, and is pruned.
func TestFlux(t *testing.T) {
	t.Parallel()
	const ns = "flux"
	m, o := flux(t), ssa.DefaultApplyOptions()
	c := m.Client()
	all := objects(t, fluxSource, ns)
	m.SetOwnerLabels(all, "apps", "flux-system")
	made := applyAll(t, m, all, o)
	allAre(t, made, ssa.CreatedAction, len(all))
	allAre(t, applyAll(t, m, all, o), ssa.UnchangedAction, len(all))
	expectNoDrift(t, m, all)
	must(t, m.WaitForSetWithContext(t.Context(), made.ToObjMetadataSet(), ssa.WaitOptions{Interval: 100 * time.Millisecond, Timeout: 30 * time.Second, FailFast: true}))

	// Somebody edits, as kubectl does, and adds a label; Flux puts the field right, and takes
	// away what kubectl has set.
	rule := find(t, all, "DestinationRule").DeepCopy()
	edit := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"edited":"yes"}},"spec":{"trafficPolicy":{"loadBalancer":{"simple":"RANDOM"}}}}`))
	must(t, c.Patch(t.Context(), rule, edit, client.FieldOwner("kubectl-edit")))
	if change, _, _, err := m.Diff(t.Context(), find(t, all, "DestinationRule"), ssa.DefaultDiffOptions()); err != nil || change.Action != ssa.ConfiguredAction {
		t.Errorf("after an edit: %v, %v", change, err)
	}
	o.Cleanup = ssa.ApplyCleanupOptions{
		Annotations:   []string{corev1.LastAppliedConfigAnnotation},
		FieldManagers: []ssa.FieldManager{{Name: "kubectl", OperationType: metav1.ManagedFieldsOperationUpdate}, {Name: "kubectl", OperationType: metav1.ManagedFieldsOperationApply}},
	}
	if by := applyAll(t, m, all, o).ToGroupedMap(); !slices.Equal(by[ssa.ConfiguredAction], []string{"DestinationRule/" + ns + "/web"}) || len(by[ssa.UnchangedAction]) != len(all)-1 {
		t.Errorf("after an edit: %v", by)
	}
	must(t, c.Get(t.Context(), client.ObjectKeyFromObject(rule), rule))
	simple, _, _ := unstructured.NestedString(rule.Object, "spec", "trafficPolicy", "loadBalancer", "simple")
	if simple != "LEAST_REQUEST" || rule.GetLabels()["edited"] != "" {
		t.Errorf("%s, labels %v, %v", simple, rule.GetLabels(), rule.GetManagedFields())
	}
	expectNoDrift(t, m, all)

	// The repository loses two objects, and a third one is somebody else's.
	gone := []*unstructured.Unstructured{find(t, all, "VirtualService"), find(t, all, "AuthorizationPolicy")}
	other := content(route(ns, "other", "web."+ns))
	must(t, c.Create(t.Context(), other.DeepCopy()))
	d := ssa.DefaultDeleteOptions()
	d.Inclusions = m.GetOwnerLabels("apps", "flux-system")
	pruned, err := m.DeleteAll(t.Context(), append(gone, other), d)
	must(t, err)
	if by := pruned.ToGroupedMap(); len(by[ssa.DeletedAction]) != 2 || len(by[ssa.SkippedAction]) != 1 {
		t.Errorf("pruned: %v", by)
	}
	must(t, m.WaitForTermination(gone, ssa.WaitOptions{Interval: 100 * time.Millisecond, Timeout: 30 * time.Second}))
	must(t, c.Get(t.Context(), client.ObjectKeyFromObject(other), other))
	allAre(t, applyAll(t, m, gone, o), ssa.CreatedAction, 2)
}

func expectNoDrift(t *testing.T, m *ssa.ResourceManager, all []*unstructured.Unstructured) {
	t.Helper()
	for _, one := range all {
		change, live, merged, err := m.Diff(t.Context(), one.DeepCopy(), ssa.DefaultDiffOptions())
		if err != nil || change.Action != ssa.UnchangedAction {
			t.Errorf("%s drifts: %v\n%v\n%v", utils.FmtUnstructured(one), err, live, merged)
		}
	}
}

func find(t *testing.T, all []*unstructured.Unstructured, kind string) *unstructured.Unstructured {
	t.Helper()
	i := slices.IndexFunc(all, func(o *unstructured.Unstructured) bool { return o.GetKind() == kind })
	if i < 0 {
		t.Fatalf("there is no %s", kind)
	}
	return all[i]
}

// TestFluxRefused: a fault in one object stops all, and names it.
func TestFluxRefused(t *testing.T) {
	t.Parallel()
	const ns = "flux-refused"
	m := flux(t)
	all := objects(t, fluxSource, ns)[1:] // the namespace would be made before
	must(t, unstructured.SetNestedField(find(t, all, "VirtualService").Object, "never", "spec", "hsots"))
	_, err := m.ApplyAll(t.Context(), all, ssa.DefaultApplyOptions())
	if err == nil || !strings.Contains(err.Error(), "VirtualService/"+ns+"/web") || !strings.Contains(err.Error(), "hsots") {
		t.Errorf("%v", err)
	}
	for _, one := range all {
		if err := m.Client().Get(t.Context(), client.ObjectKeyFromObject(one), one.DeepCopy()); !apierrors.IsNotFound(err) {
			t.Errorf("%s: %v", utils.FmtUnstructured(one), err)
		}
	}
}

// TestFluxMigrates: a repository moves from an old version of a kind to the new one.
func TestFluxMigrates(t *testing.T) {
	t.Parallel()
	const ns = "flux-migrates"
	m, o := flux(t), ssa.DefaultApplyOptions()
	all := objects(t, fluxSource, ns)
	old := make([]*unstructured.Unstructured, len(all))
	for i, one := range all {
		old[i] = one.DeepCopy()
		if strings.HasSuffix(one.GetAPIVersion(), "istio.io/v1") {
			old[i].SetAPIVersion(one.GetAPIVersion() + "beta1")
		}
	}
	allAre(t, applyAll(t, m, old, o), ssa.CreatedAction, len(all))
	o.MigrateAPIVersion = true
	applyAll(t, m, all, o)
	allAre(t, applyAll(t, m, all, o), ssa.UnchangedAction, len(all))
	expectNoDrift(t, m, all)
	var managers []string
	vs := find(t, all, "VirtualService").DeepCopy()
	must(t, m.Client().Get(t.Context(), client.ObjectKeyFromObject(vs), vs))
	for _, entry := range vs.GetManagedFields() {
		managers = append(managers, entry.Manager+" "+entry.APIVersion)
	}
	if want := []string{fluxController + " networking.istio.io/v1"}; !slices.Equal(managers, want) {
		t.Errorf("%v", managers)
	}
}

// TestFluxDefaults: fields that say their default are no drift.
func TestFluxDefaults(t *testing.T) {
	t.Parallel()
	m, o := flux(t), ssa.DefaultApplyOptions()
	all := objects(t, `
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: web, namespace: $NS}
spec:
  hosts: [web.example]
  location: MESH_EXTERNAL
  resolution: NONE
  ports: [{number: 80, name: http, protocol: HTTP, targetPort: 0}]
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: web, namespace: $NS}
spec:
  hosts: [web.example]
  http: [{route: [{destination: {host: web.example}, weight: 100}, {destination: {host: other.example}, weight: 0}]}]
`, "flux-defaults")
	allAre(t, applyAll(t, m, all, o), ssa.CreatedAction, len(all))
	allAre(t, applyAll(t, m, all, o), ssa.UnchangedAction, len(all))
	expectNoDrift(t, m, all)
}

// TestFluxWaits: Flux sees an object that a proxy refuses as failed, and says why. Proxies
// refuse clusters of the namespace "refused".
func TestFluxWaits(t *testing.T) {
	t.Parallel()
	m := flux(t)
	all := []*unstructured.Unstructured{content(service("refused", "web", "10.0.0.1")), content(service("taken", "web", "10.0.0.1"))}
	wait := func(one *unstructured.Unstructured) error {
		made := applyAll(t, m, []*unstructured.Unstructured{one}, ssa.DefaultApplyOptions())
		return m.WaitForSetWithContext(t.Context(), made.ToObjMetadataSet(), ssa.WaitOptions{Interval: 100 * time.Millisecond, Timeout: 30 * time.Second, FailFast: true})
	}
	if err := wait(all[0]); err == nil || !strings.Contains(err.Error(), "ServiceEntry/refused/web") || !strings.Contains(err.Error(), "Failed") {
		t.Errorf("a refused one: %v", err)
	}
	must(t, wait(all[1]))
}

// TestFluxSecrets: a new value of a secret is applied, though nobody can read the old one.
func TestFluxSecrets(t *testing.T) {
	t.Parallel()
	m, o := flux(t), ssa.DefaultApplyOptions()
	secret := func(value string) []*unstructured.Unstructured {
		return objects(t, "{apiVersion: v1, kind: Secret, metadata: {name: door, namespace: $NS}, stringData: {password: "+value+"}}", "flux-secrets")
	}
	allAre(t, applyAll(t, m, secret("swordfish"), o), ssa.CreatedAction, 1)
	allAre(t, applyAll(t, m, secret("swordfish"), o), ssa.UnchangedAction, 1)
	allAre(t, applyAll(t, m, secret("mackerel"), o), ssa.ConfiguredAction, 1)
}
