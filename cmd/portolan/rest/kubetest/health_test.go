package kubetest_test

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/portolan-mesh/portolan/cache/kube"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/kubetest"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/health"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// workloads has an API server list WorkloadEntries as another control plane writes them, with their
// statuses.
type workloads struct {
	mu      sync.Mutex // guards the fields below
	version int
	all     map[string]string // conditions by name
	address map[string]string // by name, if it is not 10.0.0.1
	changed chan struct{}     // closed at the next change
}

func listWorkloads(api *kubetest.API) *workloads {
	w := &workloads{all: map[string]string{}, address: map[string]string{}, changed: make(chan struct{})}
	api.Harm(func(out http.ResponseWriter, r *http.Request) bool {
		switch {
		case !strings.HasSuffix(r.URL.Path, "/v1/workloadentries"):
			return false
		case r.URL.Query().Get("sendInitialEvents") != "":
			kubetest.Refuse(out, http.StatusUnprocessableEntity, "Invalid", "no")
			return true
		}
		w.mu.Lock()
		version, changed := fmt.Sprint(w.version), w.changed
		items := w.items()
		w.mu.Unlock()
		out.Header().Set("Content-Type", "application/json")
		switch {
		case kubetest.Verb(r) != "watch":
			_, _ = fmt.Fprintf(out, `{"kind": "WorkloadEntryList", "apiVersion": "networking.istio.io/v1", "metadata": {"resourceVersion": %q}, "items": [%s]}`, version, items)
			return true
		case r.URL.Query().Get("resourceVersion") == version:
			out.(http.Flusher).Flush()
			select {
			case <-r.Context().Done():
				return true
			case <-changed:
			}
		}
		_, _ = fmt.Fprintln(out, `{"type": "ERROR", "object": {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Expired", "code": 410}}`)
		return true // the cache lists again
	})
	return w
}

// items returns the entries as a list has them. The caller holds mu.
func (w *workloads) items() string {
	var items []string
	for name, conditions := range w.all {
		items = append(items, fmt.Sprintf(`{"apiVersion": "networking.istio.io/v1", "kind": "WorkloadEntry", "metadata": {"name": %q, "namespace": "shop", "uid": "of-%[1]s", "resourceVersion": "%d"},
			"spec": {"address": %q}, "status": {"conditions": [%s]}}`, name, w.version, cmp.Or(w.address[name], "10.0.0.1"), conditions))
	}
	return strings.Join(items, ",")
}

// set sets the conditions of one entry, and adds another one by which a test sees that the cache has both.
func (w *workloads) set(name, conditions string) (mark string) {
	w.change(func() {
		mark = fmt.Sprintf("mark-%02d", w.version)
		w.all[name], w.all[mark] = conditions, ""
	})
	return mark
}

func (w *workloads) change(by func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	by()
	w.version++
	close(w.changed)
	w.changed = make(chan struct{})
}

func workloadKey(name string) config.Key {
	return config.Key{Kind: schema.WorkloadEntry, Namespace: "shop", Name: name}
}

// The condition Healthy of an entry in the cluster is its health. It changes no object, and other changes
// of a status change nothing. It is recalled with the object.
func TestCacheHealth(t *testing.T) {
	t.Parallel()
	api := kubetest.Start(t)
	listed := listWorkloads(api)
	r := run(t, api)
	at := time.Date(2026, 1, 31, 12, 0, 0, 5e8, time.UTC)
	report := func(healthy bool, message string) *health.Report {
		return &health.Report{Namespace: "shop", Name: "web", UID: "of-web", Healthy: healthy, Message: message, Probed: at, Revision: health.OfSource}
	}
	odd := func(says string) *health.Report {
		return &health.Report{Namespace: "shop", Name: "web", UID: "of-web", Unknown: true, Odd: says, Revision: health.OfSource}
	}
	const sick = `{"type": "Healthy", "status": "False", "message": "503", "lastProbeTime": "2026-01-31T12:00:00.5Z"}`
	well := strings.NewReplacer("False", "True", "503", "").Replace(sick)
	const other = `, {"type": "Accepted", "status": "True"}`
	var first, last *config.Config
	var known *health.Report
	for _, step := range []struct {
		what, conditions string
		want             *health.Report
		same             bool // as before
		odd              string
	}{
		{what: "nothing said"},
		{what: "another condition", conditions: other[2:]},
		{what: "unhealthy", conditions: sick, want: report(false, "503")},
		{what: "with another condition", conditions: sick + other, want: report(false, "503"), same: true},
		{what: "healthy", conditions: well + other, want: report(true, "")},
		{what: "neither", conditions: `{"type": "Healthy", "status": "Unknown"}`},
		{what: "no such time", conditions: strings.Replace(well, "2026-01-31T12:00:00.5Z", "noon", 1), want: &health.Report{Namespace: "shop", Name: "web", UID: "of-web", Healthy: true, Revision: health.OfSource}},
		{what: "another word", conditions: strings.Replace(well, `"True"`, `"true"`, 1), want: odd("true"), odd: "true"},
		{what: "a bool", conditions: strings.Replace(well, `"True"`, `true`, 1), want: odd("true"), odd: "true", same: true},
		{what: "no status", conditions: `{"type": "Healthy"}`, want: odd("none"), odd: "none"},
		{what: "a long word", conditions: `{"type": "Healthy", "status": "` + strings.Repeat("ä", 50) + `"}`, want: odd(strings.Repeat("ä", 40)), odd: strings.Repeat("ä", 40)},
		{what: "not a condition", conditions: `"Healthy"`},
		{what: "healthy again", conditions: well, want: report(true, "")},
	} {
		mark := listed.set("web", step.conditions)
		r.until(step.what+" is followed", func() bool { return r.Snapshot().Get(workloadKey(mark)) != nil })
		s := r.Snapshot()
		last = s.Get(workloadKey("web"))
		if first == nil {
			first = last
		}
		got := s.Health().Value(health.Path("shop", "web"))
		if d := gocmp.Diff(step.want, got); d != "" || s.Health().Len() > 1 {
			t.Errorf("%s: the health (-want +got):\n%s", step.what, d)
		}
		if last != first || last.Status != nil {
			t.Errorf("%s: the object has changed: %+v", step.what, last)
		}
		if step.same && got != known {
			t.Errorf("%s: the report has changed", step.what)
		}
		known = got
		var told []string
		for _, p := range r.Problems() {
			if told = append(told, p.String()); !p.Warning {
				t.Errorf("%s: %s is no warning", step.what, p)
			}
		}
		var want []string
		if step.odd != "" {
			want = []string{fmt.Sprintf("workloadentry/shop/web: the condition Healthy of its status is %q, so its health is not known: set its status to True, False or Unknown, as text", step.odd)}
		}
		if d := gocmp.Diff(want, told); d != "" {
			t.Errorf("%s: the problems (-want +got):\n%s", step.what, d)
		}
	}

	saved, err := config.ToJSON(kube.WithHealth(last, known), "")
	if err != nil {
		t.Fatal(err)
	}
	api.Down()
	later := run(t, api, func(o *kube.Options) {
		o.Recall = func(context.Context) ([]*config.Config, time.Time, error) {
			object, err := config.FromJSON(saved, o.Schemas.Type)
			return []*config.Config{object}, time.Unix(3000, 0), err
		}
	})
	later.await("WorkloadEntry web")
	if d := gocmp.Diff(known, later.Snapshot().Health().Value(health.Path("shop", "web"))); d != "" {
		t.Errorf("the recalled health (-want +got):\n%s", d)
	}
	listed.change(func() { listed.all = map[string]string{"api": ""} })
	api.Up(t)
	later.await("WorkloadEntry api")
	if n := later.Snapshot().Health().Len(); n > 0 {
		t.Errorf("%d reports on entries that are gone: %v", n, slices.Collect(later.Snapshot().Health().Keys()))
	}
}
