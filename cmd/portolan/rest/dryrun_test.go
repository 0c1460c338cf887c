package rest_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/batch"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/resttest"
	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/xds/admin/effect"
)

const dry = "?dryRun=All"

func TestDryRunOfABatchIsAnsweredAndNotDone(t *testing.T) {
	t.Parallel()
	s := resttest.Start(t, 0, nil)
	create(t, s, "same", "")
	create(t, s, "old", "")
	create(t, s, "changed", "")
	before := s.Store.Version()
	body := batchOf(
		write("create", entry("new", "")), write("apply", entry("same", "")),
		write("delete", entry("old", "")), write("update", entry("changed", `,"labels":{"a":"b"}`)),
	)
	tried := s.Do(t, "POST", batches+dry+"&consistent=true", body)
	if tried.Code != 200 || s.Store.Version() != before {
		t.Fatalf("%d %s; the store is at %s", tried.Code, tried.Body, s.Store.Version())
	}
	trial := parse[batch.Result](t, tried.Body)
	if trial.Revision != before {
		t.Errorf("the answer is of revision %s, the snapshot of %s", trial.Revision, before)
	}
	done := parse[batch.Result](t, s.Do(t, "POST", batches, body).Body)
	for i, want := range []string{"created", "unchanged", "deleted", "configured"} {
		if trial.Results[i].Outcome != want || done.Results[i].Outcome != want {
			t.Errorf("%s: tried %s, done %s", trial.Results[i].Name, trial.Results[i].Outcome, done.Results[i].Outcome)
		}
	}
}

// TestDryRunOfABatchFailsAsTheBatchDoes sends refused batches with and without dryRun.
func TestDryRunOfABatchFailsAsTheBatchDoes(t *testing.T) {
	t.Parallel()
	s := resttest.Start(t, 0, nil)
	create(t, s, "there", "")
	before := s.Store.Version()
	for name, body := range map[string]string{
		"stale":     batchOf(write("apply", entry("there", `,"resourceVersion":"1","labels":{"a":"b"}`))),
		"exists":    batchOf(write("create", entry("new", "")), write("create", entry("there", ""))),
		"not found": batchOf(write("update", entry("gone", "")), write("delete", entry("gone too", ""))),
		"invalid":   batchOf(write("apply", strings.Replace(entry("bad", ""), `"number":80`, `"number":800000`, 1))),
		"twice":     batchOf(write("apply", entry("a", "")), write("apply", entry("a", ""))),
	} {
		tried, done := s.Do(t, "POST", batches+dry, body), s.Do(t, "POST", batches, body)
		if tried.Code < 400 || tried.Code != done.Code || tried.Body != done.Body {
			t.Errorf("%s: tried %d %s, done %d %s", name, tried.Code, tried.Body, done.Code, done.Body)
		}
	}
	if s.Store.Version() != before {
		t.Errorf("the store went from %s to %s", before, s.Store.Version())
	}
}

func TestDryRunOfOneObject(t *testing.T) {
	t.Parallel()
	s := resttest.Start(t, 0, nil)
	there := create(t, s, "there", "")
	before := s.Store.Version()
	labelled := entry("there", `,"uid":"`+string(there.UID)+`","labels":{"a":"b"}`)

	a := s.Do(t, "POST", shopEntries+dry, entry("new", ""))
	made := parse[object](t, a.Body).Metadata
	if a.Code != 201 || made.UID == "" || made.ResourceVersion != "" || made.Generation != 1 {
		t.Errorf("create: %d %s", a.Code, a.Body)
	}
	a = s.Do(t, "PUT", shopEntries+"/there"+dry, labelled)
	changed := parse[object](t, a.Body).Metadata
	if a.Code != 200 || changed.Labels["a"] != "b" || changed.UID != there.UID || changed.ResourceVersion != there.ResourceVersion {
		t.Errorf("replace: %d %s", a.Code, a.Body)
	}
	for path, body := range map[string]string{
		"/there":       `{"dryRun":["All"],"preconditions":{"uid":"` + string(there.UID) + `"}}`,
		"/there" + dry: "",
	} {
		a = s.Do(t, "DELETE", shopEntries+path, body)
		if status := parse[metav1.Status](t, a.Body); a.Code != 200 || status.Details.UID != there.UID || status.ResourceVersion != before {
			t.Errorf("delete %s %s: %d %s", path, body, a.Code, a.Body)
		}
	}
	for what, refused := range map[string]resttest.Answer{
		"AlreadyExists": s.Do(t, "POST", shopEntries+dry, entry("there", "")),
		"NotFound":      s.Do(t, "PUT", shopEntries+"/gone"+dry, entry("gone", `,"uid":"u"`)),
		"Conflict":      s.Do(t, "PUT", shopEntries+"/there"+dry, entry("there", `,"uid":"u"`)),
		"Invalid":       s.Do(t, "POST", shopEntries+dry, strings.Replace(entry("x", ""), `"number":80`, `"number":800000`, 1)),
	} {
		if status := parse[metav1.Status](t, refused.Body); string(status.Reason) != what {
			t.Errorf("want %s: %d %s", what, refused.Code, refused.Body)
		}
	}
	if s.Store.Version() != before {
		t.Errorf("the store went from %s to %s", before, s.Store.Version())
	}
}

// fakePreviewer is a previewer that knows one proxy, and counts the operations.
type fakePreviewer struct{}

func (fakePreviewer) Preview(ops []storage.Op, what effect.Preview) (effect.Effect, bool) {
	return effect.Effect{Proxies: 1, Concerned: len(ops), Nodes: []string{string(what)}}, true
}

// TestPreviewOfABatch: with preview, a dry run shows how the objects would differ, in
// the users' form, and what that would change for proxies.
func TestPreviewOfABatch(t *testing.T) {
	t.Parallel()
	s := resttest.Start(t, 0, func(o *rest.Options) { o.Previewer = fakePreviewer{} })
	create(t, s, "same", "")
	create(t, s, "old", "")
	create(t, s, "changed", "")
	body := batchOf(
		write("create", entry("new", "")), write("apply", entry("same", "")),
		write("delete", entry("old", "")), write("update", entry("changed", `,"labels":{"a":"b"}`)),
	)
	for _, what := range effect.Previews {
		a := s.Do(t, "POST", batches+dry+"&preview="+string(what), body)
		result := parse[batch.Result](t, a.Body)
		if want := (&effect.Effect{Proxies: 1, Concerned: 4, Nodes: []string{string(what)}}); a.Code != 200 || !reflect.DeepEqual(result.Effect, want) {
			t.Fatalf("%s: %d %s", what, a.Code, a.Body)
		}
		for i, sides := range [][2]bool{{false, true}, {false, false}, {true, false}, {true, true}} {
			r := result.Results[i]
			if [2]bool{r.Before != nil, r.After != nil} != sides {
				t.Errorf("%s: before %s, after %s", r.Name, r.Before, r.After)
			}
			for _, side := range []json.RawMessage{r.Before, r.After} {
				if text := string(side); strings.Contains(text, "uid") || strings.Contains(text, "resourceVersion") || strings.Contains(text, "creationTimestamp") || strings.Contains(text, "status") {
					t.Errorf("%s shows what the server sets: %s", r.Name, text)
				}
			}
		}
		if changed := result.Results[3]; strings.Contains(string(changed.Before), `"a"`) || !strings.Contains(string(changed.After), `"a":"b"`) {
			t.Errorf("before %s, after %s", changed.Before, changed.After)
		}
	}
	for query, says := range map[string]string{dry + "&preview=all": "use proxies, resources or bodies", "?preview=proxies": "add dryRun=All"} {
		if a := s.Do(t, "POST", batches+query, body); a.Code != 400 || !strings.Contains(a.Body, says) {
			t.Errorf("%s: %d %s", query, a.Code, a.Body)
		}
	}
	for _, path := range []string{batches + dry, batches} { // without a preview nothing is added
		if a := s.Do(t, "POST", path, body); a.Code != 200 || strings.Contains(a.Body, "effect") || strings.Contains(a.Body, "before") {
			t.Errorf("%s: %d %s", path, a.Code, a.Body)
		}
	}
}
