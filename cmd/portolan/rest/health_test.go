package rest_test

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	clientrest "k8s.io/client-go/rest"
	clientcache "k8s.io/client-go/tools/cache"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/resttest"
	"github.com/portolan-mesh/portolan/storage/address"
	"github.com/portolan-mesh/portolan/storage/etcd"
)

const workloads = shop + "/workloadentries"

// onEtcd runs an API on an etcd of its own, as in the product.
func onEtcd(t *testing.T) *resttest.Server {
	t.Helper()
	e := resttest.StartEtcd(t, etcd.Options{Addresses: address.DefaultRanges()})
	return resttest.Start(t, 0, func(o *rest.Options) { o.Store, o.Cache, o.History = e.Store, e.Mirror, e.Store })
}

// workload returns a WorkloadEntry with health checks; meta and more are added to the
// object.
func workload(name, meta, more string) string {
	return fmt.Sprintf(`{"apiVersion":"networking.istio.io/v1","kind":"WorkloadEntry","metadata":{"name":%q,"namespace":"shop",`+
		`"annotations":{"proxy.istio.io/health-checks-enabled":"true"}%s},"spec":{"address":"10.0.0.1"}%s}`, name, meta, more)
}

func condition(status, more string) string {
	return fmt.Sprintf(`,"status":{"conditions":[{"type":"Healthy","status":%q%s}]}`, status, more)
}

// entryObject is the part of a WorkloadEntry that these tests check.
type entryObject struct {
	Metadata metav1.ObjectMeta `json:"metadata"`
	Spec     struct {
		Address string            `json:"address"`
		Labels  map[string]string `json:"labels"`
	} `json:"spec"`
	Status *struct {
		Conditions []struct {
			Type, Status, Reason, Message     string
			LastProbeTime, LastTransitionTime time.Time
		} `json:"conditions"`
	} `json:"status"`
}

// health returns "True", "False" or "" without a condition.
func (o entryObject) health() string {
	if o.Status == nil || len(o.Status.Conditions) == 0 {
		return ""
	}
	return o.Status.Conditions[0].Status
}

func do(t *testing.T, s *resttest.Server, method, path, body string, code int) entryObject {
	t.Helper()
	a := s.Do(t, method, path, body)
	if a.Code != code {
		t.Fatalf("%s %s: %d, want %d: %s", method, path, a.Code, code, a.Body)
	}
	return parse[entryObject](t, a.Body)
}

func revisionOf(t *testing.T, version string) int {
	t.Helper()
	n, err := strconv.Atoi(version)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestTheStatusOfAWorkloadIsSetAndShown(t *testing.T) {
	t.Parallel()
	s := onEtcd(t)
	made := do(t, s, "POST", workloads, workload("w", "", condition("True", "")), 201)
	if made.health() != "" {
		t.Error("a status in a create was taken")
	}
	set := do(t, s, "PUT", workloads+"/w/status",
		workload("w", `,"labels":{"a":"b"}`, condition("False", `,"message":"503","reason":"Probe","lastProbeTime":"2026-01-31T12:00:00.5Z"`)), 200)
	if set.health() != "False" || revisionOf(t, set.Metadata.ResourceVersion) <= revisionOf(t, made.Metadata.ResourceVersion) {
		t.Errorf("%+v after %s", set, made.Metadata.ResourceVersion)
	}
	if c := set.Status.Conditions[0]; c.Message != "503" || c.Reason != "Probe" || !c.LastTransitionTime.Equal(c.LastProbeTime) || c.LastProbeTime.Nanosecond() != 5e8 {
		t.Errorf("%+v", c)
	}
	if set.Metadata.Labels != nil || set.Metadata.Generation != 1 {
		t.Errorf("more than the status was set: %+v", set.Metadata)
	}
	for _, path := range []string{workloads + "/w", workloads + "/w/status"} {
		if got := do(t, s, "GET", path, "", 200); got.health() != "False" || got.Metadata.ResourceVersion != set.Metadata.ResourceVersion {
			t.Errorf("%s: %+v", path, got)
		}
	}
	if list := s.Do(t, "GET", workloads, ""); !strings.Contains(list.Body, `"status":"False"`) {
		t.Errorf("list: %s", list.Body)
	}
	replaced := do(t, s, "PUT", workloads+"/w", workload("w", `,"labels":{"a":"b"}`, condition("True", "")), 200)
	if replaced.health() != "False" {
		t.Error("a status in a replace was taken")
	}
	back := do(t, s, "PUT", workloads+"/w/status", workload("w", "", ""), 200)
	if back.health() != "" || revisionOf(t, back.Metadata.ResourceVersion) <= revisionOf(t, replaced.Metadata.ResourceVersion) {
		t.Errorf("taken back: %+v", back)
	}
}

func TestAPreconditionIsAboutSpecAndStatus(t *testing.T) {
	t.Parallel()
	s := onEtcd(t)
	made := do(t, s, "POST", workloads, workload("w", "", ""), 201).Metadata
	reported := do(t, s, "PUT", workloads+"/w/status", workload("w", `,"resourceVersion":"`+made.ResourceVersion+`"`, condition("True", "")), 200).Metadata
	at := func(version string, more string) string {
		return workload("w", `,"resourceVersion":"`+version+`"`, more)
	}
	for name, c := range map[string]struct{ method, path, body string }{
		"status":  {"PUT", workloads + "/w/status", at(made.ResourceVersion, condition("False", ""))},
		"replace": {"PUT", workloads + "/w", at(made.ResourceVersion, "")},
		"delete":  {"DELETE", workloads + "/w", `{"preconditions":{"resourceVersion":"` + made.ResourceVersion + `"}}`},
		"batch": {"POST", "/apis/portolan.io/v1/batches",
			`{"apiVersion":"portolan.io/v1","kind":"Batch","operations":[{"verb":"apply","object":` + at(made.ResourceVersion, "") + `}]}`},
		"uid": {"PUT", workloads + "/w/status", workload("w", `,"uid":"x"`, condition("False", ""))},
	} {
		if a := s.Do(t, c.method, c.path, c.body); a.Code != 409 {
			t.Errorf("%s with the version before the status: %d %s", name, a.Code, a.Body)
		}
	}
	if unchanged := do(t, s, "PUT", workloads+"/w", at(reported.ResourceVersion, ""), 200).Metadata; unchanged.ResourceVersion != reported.ResourceVersion {
		t.Errorf("nothing changed, and the version is %s", unchanged.ResourceVersion)
	}
	changed := do(t, s, "PUT", workloads+"/w", strings.Replace(at(reported.ResourceVersion, ""), "10.0.0.1", "10.0.0.2", 1), 200)
	if changed.health() != "True" || changed.Spec.Address != "10.0.0.2" {
		t.Errorf("%+v", changed)
	}
	again := do(t, s, "PUT", workloads+"/w/status", at(changed.Metadata.ResourceVersion, condition("False", "")), 200)
	if a := s.Do(t, "PUT", workloads+"/w?dryRun=All", at(changed.Metadata.ResourceVersion, "")); a.Code != 409 {
		t.Errorf("dry run: %d %s", a.Code, a.Body)
	}
	do(t, s, "PUT", workloads+"/w?dryRun=All", at(again.Metadata.ResourceVersion, ""), 200)
	uid := `{"preconditions":{"uid":"` + string(again.Metadata.UID) + `"}}`
	if a := s.Do(t, "DELETE", workloads+"/w", uid); a.Code != 200 {
		t.Errorf("delete by uid: %d %s", a.Code, a.Body)
	}
	if anew := do(t, s, "POST", workloads, workload("w", "", ""), 201); anew.health() != "" {
		t.Error("made anew with the health of the one before")
	}
}

func TestAStatusThatCannotBeSet(t *testing.T) {
	t.Parallel()
	s := onEtcd(t)
	do(t, s, "POST", workloads, workload("w", "", ""), 201)
	for name, c := range map[string]struct {
		body string
		code int
		want string
	}{
		"no type":       {workload("w", "", `,"status":{"conditions":[{"status":"True"}]}`), 422, "status.conditions[0].type: is empty"},
		"unknown":       {workload("w", "", condition("Unknown", "")), 422, "status.conditions[0].status: is \"Unknown\": use True or False"},
		"twice":         {workload("w", "", `,"status":{"conditions":[{"type":"Healthy","status":"True"},{"type":"Healthy","status":"True"}]}`), 422, "say it once"},
		"another field": {workload("w", "", `,"status":{"health":"True"}`), 400, "status.health: unknown field"},
		"another name":  {workload("x", "", condition("True", "")), 400, "metadata.name"},
		"another kind":  {entry("w", ""), 400, "kind"},
		"too long":      {workload("w", "", condition("True", `,"message":"`+strings.Repeat("x", 40_000)+`"`)), 422, "40007 bytes"},
		"no time":       {workload("w", "", condition("True", `,"lastProbeTime":"0001-01-01T00:00:00Z"`)), 422, "lastProbeTime"},
	} {
		if a := s.Do(t, "PUT", workloads+"/w/status", c.body); a.Code != c.code || !strings.Contains(strings.ReplaceAll(a.Body, `\"`, `"`), c.want) {
			t.Errorf("%s: %d %s", name, a.Code, a.Body)
		}
	}
	for _, c := range []struct {
		method, path string
		code         int
	}{
		{"PUT", workloads + "/none/status", 404}, {"DELETE", workloads + "/w/status", 405}, {"GET", workloads + "/w/scale", 404},
		{"GET", shopEntries + "/a/status", 404}, {"PUT", workloads + "/w/status?dryRun=Some", 422},
	} {
		if a := s.Do(t, c.method, c.path, strings.Replace(workload("w", "", condition("True", "")), `"w"`, `"`+strings.Split(strings.TrimPrefix(c.path, workloads+"/"), "/")[0]+`"`, 1)); a.Code != c.code {
			t.Errorf("%s %s: %d %s", c.method, c.path, a.Code, a.Body)
		}
	}
}

func TestAReportWithoutEffectIsToldOf(t *testing.T) {
	t.Parallel()
	s := onEtcd(t)
	do(t, s, "POST", workloads, strings.Replace(workload("w", "", ""), `:"true"`, `:"false"`, 1), 201)
	newer := s.Do(t, "PUT", workloads+"/w/status", workload("w", "", condition("True", `,"lastProbeTime":"2026-01-31T12:00:01Z"`)))
	if got := strings.Join(newer.Header.Values("Warning"), " "); newer.Code != 200 || !strings.Contains(got, "counts as healthy whatever is reported") {
		t.Errorf("%d, warning %q", newer.Code, got)
	}
	older := s.Do(t, "PUT", workloads+"/w/status", workload("w", "", condition("False", `,"lastProbeTime":"2026-01-31T12:00:00Z"`)))
	if got := strings.Join(older.Header.Values("Warning"), " "); !strings.Contains(got, "nothing was changed") || parse[entryObject](t, older.Body).health() != "True" {
		t.Errorf("%s, warning %q", older.Body, got)
	}
}

func TestDiscoveryTellsOfTheStatus(t *testing.T) {
	t.Parallel()
	path := "/apis/networking.istio.io/v1"
	if a := onEtcd(t).Do(t, "GET", path, ""); !strings.Contains(a.Body, `"workloadentries/status"`) || !strings.Contains(a.Body, `"serviceentries/status"`) || strings.Contains(a.Body, `"secrets/status"`) {
		t.Errorf("%s", a.Body)
	}
	if a := resttest.Start(t, 0, nil).Do(t, "GET", path, ""); strings.Contains(a.Body, "/status") {
		t.Errorf("a store without health: %s", a.Body)
	}
}

// An informer sees each change of health as an update, in the order of revisions, and
// resumes from the version of a health.
func TestAnInformerSeesHealth(t *testing.T) {
	t.Parallel()
	s := onEtcd(t)
	d, err := dynamic.NewForConfig(&clientrest.Config{Host: s.URL, Transport: s.HTTP.Transport})
	if err != nil {
		t.Fatal(err)
	}
	resource := gvr
	resource.Resource = "workloadentries"
	do(t, s, "POST", workloads, workload("w", "", ""), 201)
	seen := make(chan string, 100)
	tell := func(event string, object any) {
		u := object.(*unstructured.Unstructured)
		conditions, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
		status := "none"
		if len(conditions) > 0 {
			status = conditions[0].(map[string]any)["status"].(string)
		}
		seen <- event + " " + u.GetName() + " " + status + " " + u.GetResourceVersion()
	}
	informer := resttest.Informer(d.Resource(resource).Namespace("shop"))
	if _, err := informer.AddEventHandler(clientcache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { tell("add", o) },
		UpdateFunc: func(_, o any) { tell("update", o) },
		DeleteFunc: func(o any) { tell("delete", o) },
	}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { informer.RunWithContext(ctx) })
	defer running.Wait()
	defer cancel()
	want := func(event, status string, version string) {
		t.Helper()
		select {
		case got := <-seen:
			if got != event+" w "+status+" "+version {
				t.Fatalf("saw %q, want %s %s %s", got, event, status, version)
			}
		case <-time.After(30 * time.Second):
			t.Fatalf("%s %s was not seen", event, status)
		}
	}
	made := do(t, s, "GET", workloads+"/w", "", 200)
	want("add", "none", made.Metadata.ResourceVersion)
	for i, status := range []string{"True", "False", "True"} {
		told := do(t, s, "PUT", workloads+"/w/status", workload("w", "", condition(status, "")), 200)
		want("update", status, told.Metadata.ResourceVersion)
		if i == 1 {
			s.HTTP.CloseIdleConnections()
			s.REST.EndWatches() // the informer reconnects, from the version of a health
			break
		}
	}
	if a := s.Do(t, http.MethodDelete, workloads+"/w", ""); a.Code != 200 {
		t.Fatal(a.Body)
	}
}

// The addresses of its hosts are the status of a ServiceEntry, wherever it is shown.
// They are written with the object, whose version is its own.
func TestTheStatusOfAServiceEntryIsItsAddresses(t *testing.T) {
	t.Parallel()
	s := onEtcd(t)
	type status struct {
		Metadata metav1.ObjectMeta `json:"metadata"`
		Status   struct {
			Addresses []struct{ Value, Host string } `json:"addresses"`
		} `json:"status"`
	}
	made := parse[status](t, s.Do(t, "POST", shopEntries, entry("a", "")).Body)
	if len(made.Status.Addresses) != 2 || made.Status.Addresses[0].Host != "a.shop" {
		t.Fatalf("created: %+v", made)
	}
	got := parse[status](t, s.Do(t, "GET", shopEntries+"/a", "").Body)
	if fmt.Sprint(got) != fmt.Sprint(made) {
		t.Errorf("got %+v, made %+v", got, made)
	}
	if list := s.Do(t, "GET", shopEntries, "").Body; !strings.Contains(list, made.Status.Addresses[1].Value) {
		t.Errorf("list: %s", list)
	}
	if watch := s.Do(t, "GET", shopEntries+"?watch=true&timeoutSeconds=1&resourceVersion="+made.Metadata.ResourceVersion, "").Body; !strings.Contains(watch, made.Status.Addresses[1].Value) {
		t.Errorf("watch: %s", watch)
	}
	own := s.Do(t, "POST", shopEntries, strings.Replace(entry("b", ""), `"location"`, `"addresses":["10.9.0.1"],"location"`, 1))
	if own.Code != 201 || strings.Contains(own.Body, `"status"`) {
		t.Errorf("one with an address of its own: %d %s", own.Code, own.Body)
	}
}

// A watch from a revision gets a health of that revision again. A watch of other kinds
// gets nothing of it.
func TestAWatchBeginsWithAHealth(t *testing.T) {
	t.Parallel()
	s := onEtcd(t)
	do(t, s, "POST", workloads, workload("w", "", ""), 201)
	do(t, s, "POST", workloads, workload("x", "", ""), 201)
	reported := do(t, s, "PUT", workloads+"/w/status", workload("w", "", condition("True", "")), 200).Metadata.ResourceVersion
	do(t, s, "PUT", workloads+"/x/status", workload("x", "", condition("False", "")), 200)
	a := s.Do(t, "GET", workloads+"?watch=true&timeoutSeconds=1&resourceVersion="+reported, "")
	var got []string
	for line := range strings.Lines(a.Body) {
		event := parse[struct {
			Type   string
			Object entryObject
		}](t, line)
		got = append(got, event.Type+" "+event.Object.Metadata.Name+" "+event.Object.health())
	}
	if strings.Join(got, ", ") != "MODIFIED w True, MODIFIED x False" {
		t.Errorf("events: %q", got)
	}
	if a := s.Do(t, "GET", shopEntries+"?watch=true&timeoutSeconds=1&resourceVersion="+reported, ""); a.Body != "" {
		t.Errorf("events of ServiceEntries: %s", a.Body)
	}
}
