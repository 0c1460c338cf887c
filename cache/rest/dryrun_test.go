package rest_test

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portolan-mesh/portolan/cache/rest/batch"
	"github.com/portolan-mesh/portolan/cache/rest/resttest"
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

// TestDryRunOfABatchFailsAsTheBatchDoes sends refused batches both ways.
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
