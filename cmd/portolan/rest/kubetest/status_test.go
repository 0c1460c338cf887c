package kubetest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/cache/kube"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/kubetest"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/storage/status"
)

// keptStatuses has an API server keep the statuses of ServiceEntries, and counts requests for them.
type keptStatuses struct {
	mu            sync.Mutex // guards the fields below
	all           map[string]any
	reads, writes int
	at            []time.Time     // of the writes
	invalid       map[string]bool // names of those whose statuses are refused
}

func keepStatuses(t *testing.T, api *kubetest.API) *keptStatuses {
	k := &keptStatuses{all: map[string]any{}}
	const one = "/apis/networking.istio.io/v1/namespaces/shop/serviceentries/"
	api.Harm(func(w http.ResponseWriter, r *http.Request) bool {
		object, ok := strings.CutPrefix(r.URL.Path, one)
		if !ok {
			return false
		}
		k.mu.Lock()
		defer k.mu.Unlock()
		if name := path.Dir(object); name != "." {
			var applied map[string]any
			if text, err := io.ReadAll(r.Body); err != nil || json.Unmarshal(text, &applied) != nil {
				t.Errorf("%s %s: %s %v", r.Method, r.URL, text, err)
			}
			k.writes++
			k.at = append(k.at, time.Now())
			if k.invalid[name] {
				kubetest.Refuse(w, http.StatusUnprocessableEntity, "Invalid", "the status is not valid")
				return true
			}
			k.all[name], object = applied["status"], name
		} else {
			k.reads++
		}
		var out map[string]any
		if got := api.Do(t, "GET", one+object, ""); json.Unmarshal([]byte(got.Body), &out) != nil {
			t.Errorf("%+v", got)
		}
		out["status"] = k.all[object]
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(out)
		return true
	})
	return k
}

// A writer that begins while the cluster is away has the objects that the cluster last had. Once their
// kinds are followed, it compares each with the cluster, and writes the conditions that differ.
func TestStatusWriterBegins(t *testing.T) {
	t.Parallel()
	api := kubetest.Start(t)
	for _, name := range []string{"one", "two"} {
		write(t, api, name, "a.example")
	}
	kept := keepStatuses(t, api)
	first := run(t, api)
	first.await("ServiceEntry one", "ServiceEntry two")
	had := slices.Collect(first.Snapshot().Configs().Values())
	for _, want := range []int{2, 0} { // statuses that differ
		api.Down()
		r := run(t, api, func(o *kube.Options) {
			o.Recall = func(context.Context) ([]*config.Config, time.Time, error) { return had, time.Unix(3000, 0), nil }
		})
		r.await("ServiceEntry one", "ServiceEntry two")
		looks := writeStatuses(t, r, "")
		r.until("the writer has looked", func() bool { return looks.Load() > 1 })
		kept.mu.Lock()
		kept.reads, kept.writes = 0, 0
		kept.mu.Unlock()
		api.Up(t)
		r.until("the writer has compared", func() bool {
			kept.mu.Lock()
			defer kept.mu.Unlock()
			return kept.reads == 2 && kept.writes >= want
		})
		before := looks.Load()
		r.until("the writer has looked again", func() bool { return looks.Load() > before })
		kept.mu.Lock()
		if kept.reads != 2 || kept.writes != want {
			t.Errorf("%d reads and %d writes, want 2 and %d", kept.reads, kept.writes, want)
		}
		kept.mu.Unlock()
	}
}

// A writer writes a status in which a condition is gone or differs, or that is of an older generation.
// What others have in it stays out of this. An object that another source shadows is not in effect.
func TestStatusWriterCompares(t *testing.T) {
	t.Parallel()
	condition := func(typ, status, reason, message string) any {
		return map[string]any{"type": typ, "status": status, "reason": reason, "message": message}
	}
	seen := condition("Accepted", "True", "Seen", "seen")
	const shadowed = "it is not in effect: the store has this object too, and comes first"
	for name, test := range map[string]struct {
		source     string
		generation int
		conditions []any
		writes     int
		message    string // in the end
	}{
		"equal":                 {"", 1, []any{seen}, 0, "seen"},
		"with one of others":    {"", 1, []any{condition("Synced", "True", "By", "them"), seen}, 0, "seen"},
		"of another generation": {"", 0, []any{seen}, 1, "seen"},
		"differing":             {"", 1, []any{condition("Accepted", "True", "Seen", "before")}, 1, "seen"},
		"with one that is gone": {"", 1, []any{seen, condition("ResolvedRefs", "False", "Missing", "it is")}, 1, "seen"},
		"shadowed":              {"kube://east", 1, []any{seen}, 1, shadowed},
		"known as shadowed":     {"kube://east", 1, []any{condition("Accepted", "False", "Shadowed", shadowed)}, 0, shadowed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			api := kubetest.Start(t)
			write(t, api, "one", "a.example")
			kept := keepStatuses(t, api)
			kept.all["one"] = map[string]any{"observedGeneration": test.generation, "conditions": test.conditions}
			r := run(t, api)
			r.await("ServiceEntry one")
			looks := writeStatuses(t, r, test.source)
			r.until("the writer has compared", func() bool {
				kept.mu.Lock()
				defer kept.mu.Unlock()
				return kept.reads > 0 && kept.writes >= test.writes
			})
			before := looks.Load()
			r.until("the writer has looked again", func() bool { return looks.Load() > before })
			kept.mu.Lock()
			defer kept.mu.Unlock()
			text, err := json.Marshal(kept.all["one"])
			if got := string(text); err != nil || kept.writes != test.writes || !strings.Contains(got, `"observedGeneration":1`) ||
				!strings.Contains(got, test.message) || strings.Contains(got, "ResolvedRefs") {
				t.Errorf("%d writes, want %d: %s", kept.writes, test.writes, got)
			}
		})
	}
}

// A writer with many objects writes at most 20 a second, those that the cluster refuses included. It
// writes each once.
func TestStatusWriterRate(t *testing.T) {
	t.Parallel()
	const objects, pause = 24, 50 * time.Millisecond
	api := kubetest.Start(t)
	kept := keepStatuses(t, api)
	kept.invalid = map[string]bool{}
	var all []string
	for i := range objects {
		name := fmt.Sprintf("e%02d", i)
		write(t, api, name, "a.example")
		kept.invalid[name] = i%3 == 0
		all = append(all, "ServiceEntry "+name)
	}
	r := run(t, api)
	r.await(all...)
	looks := writeStatuses(t, r, "")
	writes := func() []time.Time {
		kept.mu.Lock()
		defer kept.mu.Unlock()
		return slices.Clone(kept.at)
	}
	r.until("all are written", func() bool { return len(writes()) >= objects })
	before := looks.Load()
	r.until("the writer has looked again", func() bool { return looks.Load() > before+1 })
	at := writes()
	if len(at) != objects {
		t.Errorf("%d writes, want %d", len(at), objects)
	}
	for i := 1; i < len(at); i++ {
		if apart := at[i].Sub(at[i-1]); apart < pause {
			t.Errorf("write %d comes %s after the one before it", i, apart)
		}
	}
}

// A kind whose statuses the account may not write stops those of no other kind. All rights that are
// missing are named at once, and none is tried twice in a row.
func TestStatusWriterWithoutRights(t *testing.T) {
	t.Parallel()
	api := kubetest.Start(t)
	write(t, api, "one", "a.example")
	write(t, api, "two", "a.example")
	const group = "/apis/networking.istio.io/v1/namespaces/shop/"
	for resource, document := range map[string]string{
		"destinationrules": `{"apiVersion":"networking.istio.io/v1","kind":"DestinationRule","metadata":{"name":"first"},"spec":{"host":"a.example"}}`,
		"workloadentries":  `{"apiVersion":"networking.istio.io/v1","kind":"WorkloadEntry","metadata":{"name":"last"},"spec":{"address":"10.0.0.1"}}`,
	} {
		if got := api.Do(t, "POST", group+resource, document); got.Code != http.StatusCreated {
			t.Fatal(got)
		}
	}
	var mu sync.Mutex // guards the variables below
	tries, written := map[string]int{}, map[string]bool{}
	api.Harm(func(w http.ResponseWriter, r *http.Request) bool {
		path := strings.TrimPrefix(r.URL.Path, group)
		mu.Lock()
		defer mu.Unlock()
		verb := kubetest.Verb(r)
		switch resource, _, _ := strings.Cut(path, "/"); {
		case resource == "destinationrules" && verb == "get", resource == "serviceentries" && verb == "patch":
			tries[resource]++
			kubetest.Refuse(w, http.StatusForbidden, "Forbidden", `User "follower" cannot do so`)
			return true
		case verb == "patch":
			written[path] = true
			w.Header().Set("Content-Type", "application/json")
			_, _ = fmt.Fprintf(w, `{"apiVersion":"networking.istio.io/v1","kind":"Any","metadata":{"name":"any"}}`)
			return true
		}
		return false
	})
	r := run(t, api)
	r.await("DestinationRule first", "ServiceEntry one", "ServiceEntry two", "WorkloadEntry last")
	writeStatuses(t, r, "")
	r.until("the rights are named", func() bool {
		return len(r.Problems()) == 1 && strings.Contains(r.Problems()[0].Message, "may not get destinationrules.networking.istio.io ") &&
			strings.Contains(r.Problems()[0].Message, "may not patch serviceentries.networking.istio.io/status ")
	})
	mu.Lock()
	if got := fmt.Sprint(tries, written); got != "map[destinationrules:1 serviceentries:1] map[workloadentries/last/status:true]" {
		t.Errorf("refused requests, and statuses that were written: %s", got)
	}
	mu.Unlock()
}

// writeStatuses runs a StatusWriter for the objects of a source, with a report on each object that
// there is. It counts how often that looks for changes.
func writeStatuses(t *testing.T, r running, source string) (looks *atomic.Int64) {
	looks = &atomic.Int64{}
	var reports pmap.Map[*status.Report]
	for path, object := range r.Snapshot().Configs().All() {
		revision, _ := object.Revision()
		reports = reports.Set(path, &status.Report{
			Key: object.Key(), UID: object.UID, Object: revision, Version: object.ResourceVersion,
			Conditions: []status.Condition{{Type: status.Accepted, Status: status.True, Reason: "Seen", Message: "seen"}},
		})
	}
	w := &kube.StatusWriter{Cache: r.Cache, Source: source, Snapshot: func() *cache.Snapshot {
		looks.Add(1)
		return r.Snapshot().WithStatuses(reports, true)
	}}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = w.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return looks
}
