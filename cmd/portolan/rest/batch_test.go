package rest_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/batch"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/resttest"
	"github.com/portolan-mesh/portolan/discovery/access"
)

const batches = "/apis/portolan.io/v1/batches"

func batchOf(operations ...string) string {
	return `{"apiVersion":"portolan.io/v1","kind":"Batch","operations":[` + strings.Join(operations, ",") + `]}`
}

func write(verb, object string) string { return `{"verb":"` + verb + `","object":` + object + `}` }

func TestRestoreKeepsTheCreationTime(t *testing.T) {
	t.Parallel()
	s := resttest.Start(t, 0, nil)
	gone := func(verb, name string) string {
		return write(verb, entry(name, `,"creationTimestamp":"2001-02-03T04:05:06Z","resourceVersion":"0"`))
	}
	if a := s.Do(t, "POST", batches, batchOf(gone("restore", "old"), gone("apply", "new"))); a.Code != 200 {
		t.Fatalf("%d %s", a.Code, a.Body)
	}
	for name, want := range map[string]bool{"old": true, "new": false} {
		text := s.Do(t, "GET", "/apis/networking.istio.io/v1/namespaces/shop/serviceentries/"+name, "").Body
		if strings.Contains(text, "2001-02-03T04:05:06Z") != want {
			t.Errorf("%s: %s", name, text)
		}
	}
	if a := s.Do(t, "POST", batches, batchOf(gone("restore", "old"))); a.Code != 409 {
		t.Errorf("again: %d %s", a.Code, a.Body)
	}
}

const logging = `{"apiVersion":"telemetry.istio.io/v1alpha1","kind":"Telemetry","metadata":{"name":"p","namespace":"shop"},"spec":{"metrics":[{"reportingInterval":"5s"}]}}`

func TestBatchIsOneRevision(t *testing.T) {
	t.Parallel()
	s := resttest.Start(t, 0, nil)
	create(t, s, "same", "")
	create(t, s, "old", "")
	create(t, s, "older", "")
	a := s.Do(t, "POST", batches, batchOf(
		write("create", entry("new", "")),
		write("apply", entry("same", "")),
		`{"verb":"delete","apiVersion":"networking.istio.io/v1beta1","kind":"ServiceEntry","namespace":"shop","name":"old"}`,
		write("delete", entry("older", "")),
		write("apply", logging),
	))
	if a.Code != 200 {
		t.Fatalf("%d %s", a.Code, a.Body)
	}
	result := parse[batch.Result](t, a.Body)
	var outcomes []string
	for _, r := range result.Results {
		outcomes = append(outcomes, r.Kind+"/"+r.Namespace+"/"+r.Name+" "+r.Outcome)
		if r.Outcome != "unchanged" && r.ResourceVersion != result.Revision {
			t.Errorf("%s is at %s, the batch at %s", r.Name, r.ResourceVersion, result.Revision)
		}
	}
	want := "ServiceEntry/shop/new created, ServiceEntry/shop/same unchanged, ServiceEntry/shop/old deleted, ServiceEntry/shop/older deleted, Telemetry/shop/p created"
	if got := strings.Join(outcomes, ", "); got != want || result.Kind != "BatchResult" {
		t.Errorf("%s", a.Body)
	}
	if len(result.Warnings) != 1 || !strings.HasPrefix(result.Warnings[0], "telemetry/shop/p: ") {
		t.Errorf("warnings %q", result.Warnings)
	}
	if again := s.Do(t, "POST", batches, batchOf(write("apply", entry("same", "")))); parse[batch.Result](t, again.Body).Revision != result.Revision {
		t.Errorf("a batch that changes nothing wrote: %s", again.Body)
	}
}

func TestRefusedBatches(t *testing.T) {
	t.Parallel()
	s := resttest.Start(t, 0, nil)
	create(t, s, "there", "")
	good := write("apply", entry("good", ""))
	unreadable := strings.Replace(entry("bad", ""), `"hosts"`, `"hots"`, 1)
	invalid := strings.Replace(entry("bad", ""), `"number":80`, `"number":800000`, 1)
	tests := []struct {
		name, body string
		code       int
		reason     metav1.StatusReason
		fields     string // of the causes
		says       string
	}{
		{"unreadable", batchOf(good, write("apply", unreadable)), 400, "BadRequest", "operations[1].object.spec.hots", "serviceentry/shop/bad"},
		{"invalid", batchOf(good, write("apply", invalid)), 422, "Invalid", "operations[1].object.spec.ports[0].number", "serviceentry/shop/bad"},
		{"all faults", batchOf(write("apply", invalid), write("apply", unreadable), `{"verb":"frob"}`), 400, "BadRequest",
			"operations[0].object.spec.ports[0].number operations[1].object.spec.hots operations[2].verb", "frob"},
		{"one object twice", batchOf(good, good), 422, "Invalid", "operations[1]", "operations[0]"},
		{"create with version", batchOf(write("create", entry("x", `,"resourceVersion":"1"`))), 422, "Invalid", "operations[0].object.metadata.resourceVersion", ""},
		{"no namespace", batchOf(write("apply", strings.Replace(entry("x", ""), `,"namespace":"shop"`, "", 1))), 422, "Invalid", "operations[0].object.metadata.namespace", ""},
		{"no object", batchOf(`{"verb":"create"}`), 400, "BadRequest", "operations[0].object", ""},
		{"object and fields", batchOf(strings.Replace(good, `"verb"`, `"name":"x","verb"`, 1)), 400, "BadRequest", "operations[0]", ""},
		{"delete of what", batchOf(`{"verb":"delete","apiVersion":"networking.istio.io/v1","kind":"Gateway","namespace":"x"}`), 400, "BadRequest", "operations[0].name", ""},
		{"delete of unknown kind", batchOf(`{"verb":"delete","apiVersion":"v1","kind":"Pod","namespace":"x","name":"y"}`), 400, "BadRequest", "operations[0]", "Pod"},
		{"stale", batchOf(good, write("apply", entry("there", `,"labels":{"a":"b"},"resourceVersion":"99"`))), 409, "Conflict", "operations[1].object.metadata.resourceVersion", "99"},
		{"exists", batchOf(good, write("create", entry("there", `,"labels":{"a":"b"}`))), 409, "AlreadyExists", "operations[1]", "serviceentry/shop/there"},
		{"absent", batchOf(good, write("delete", entry("gone", ""))), 404, "NotFound", "operations[1]", "serviceentry/shop/gone"},
		{"several", batchOf(write("delete", entry("gone", "")), write("update", entry("there", `,"labels":{"a":"b"},"resourceVersion":"99"`))), 409, "Conflict",
			"operations[0] operations[1].object.metadata.resourceVersion", "serviceentry/shop/gone"},
		{"empty", batchOf(), 400, "BadRequest", "", "operations"},
		{"other kind", entry("x", ""), 400, "BadRequest", "", ""},
		{"unknown field", strings.Replace(batchOf(good), `"operations"`, `"atomic":true,"operations"`, 1), 400, "BadRequest", "", "atomic"},
		{"more text", batchOf(good) + batchOf(good), 400, "BadRequest", "", "follows"},
		{"broken", `{`, 400, "BadRequest", "", ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			before := s.Store.Version()
			a := s.Do(t, "POST", batches, test.body)
			status := parse[metav1.Status](t, a.Body)
			var fields []string
			if status.Details != nil {
				for _, cause := range status.Details.Causes {
					fields = append(fields, cause.Field)
				}
			}
			if a.Code != test.code || status.Reason != test.reason || strings.Join(fields, " ") != test.fields || !strings.Contains(status.Message, test.says) {
				t.Errorf("%d %s", a.Code, a.Body)
			}
			if s.Store.Version() != before {
				t.Error("the store was written")
			}
		})
	}
	if a := s.Do(t, "GET", batches, ""); a.Code != 405 || a.Header.Get("Allow") != "POST" {
		t.Errorf("GET: %d", a.Code)
	}
	if a := s.Do(t, "POST", batches+"?dryRun=", batchOf(good)); a.Code != 422 {
		t.Errorf("dryRun: %d", a.Code)
	}
}

// only permits a user one verb in one namespace.
type only struct{ verb, namespace string }

func (o only) Authorize(_ context.Context, who access.Identity, wants access.Request) error {
	if wants.Verb == o.verb && wants.Namespace == o.namespace && who.User == "local" {
		return nil
	}
	return errors.New("you may not " + wants.Verb + " " + wants.Resource)
}

func TestBatchIsAuthorizedByOperation(t *testing.T) {
	t.Parallel()
	s := resttest.Start(t, 0, func(o *rest.Options) { o.Authorizer = only{"create", "shop"} })
	if a := s.Do(t, "POST", batches, batchOf(write("create", entry("x", "")))); a.Code != 200 {
		t.Errorf("what is allowed: %d %s", a.Code, a.Body)
	}
	a := s.Do(t, "POST", batches, batchOf(write("create", entry("y", "")), write("apply", entry("z", ""))))
	if status := parse[metav1.Status](t, a.Body); a.Code != 403 || len(status.Details.Causes) != 1 || status.Details.Causes[0].Field != "operations[1]" {
		t.Errorf("what is not: %d %s", a.Code, a.Body)
	}
	if a := s.Do(t, "GET", entries, ""); a.Code != 403 {
		t.Errorf("list: %d", a.Code)
	}
}

// TestRestoreTakesHealthOver: of the status of a WorkloadEntry a restore takes the condition Healthy, and no other
// verb does. What is wrong with it refuses the batch; a server that keeps no health says so.
func TestRestoreTakesHealthOver(t *testing.T) {
	t.Parallel()
	s := onEtcd(t)
	for verb, want := range map[string]bool{"restore": true, "apply": false, "create": false} {
		a := s.Do(t, "POST", batches, batchOf(write(verb, workload(verb, "", condition("True", "")))))
		if a.Code != 200 || strings.Contains(a.Body, `"note":"healthy, as its status says"`) != want {
			t.Errorf("%s: %d %s", verb, a.Code, a.Body)
		}
		if text := s.Do(t, "GET", workloads+"/"+verb, "").Body; strings.Contains(text, `"type":"Healthy"`) != want {
			t.Errorf("%s: %s", verb, text)
		}
	}
	// The first condition Healthy counts, and says nothing here.
	a := s.Do(t, "POST", batches, batchOf(write("restore", workload("unknown", "", condition("Unknown", `},{"type":"Healthy","status":"True"`)))))
	if a.Code != 200 || !strings.Contains(a.Body, "its status has no condition Healthy that is True or False") {
		t.Errorf("a first condition that says nothing: %d %s", a.Code, a.Body)
	}
	bad := s.Do(t, "POST", batches, batchOf(write("restore", workload("bad", "", condition("True", `,"lastProbeTime":"1950-01-01T00:00:00Z"`)))))
	if bad.Code != 422 || !strings.Contains(bad.Body, "operations[0].object.status.conditions[0].lastProbeTime") {
		t.Errorf("a bad time: %d %s", bad.Code, bad.Body)
	}
	a = resttest.Start(t, 0, nil).Do(t, "POST", batches, batchOf(write("restore", workload("a", "", condition("True", "")))))
	if a.Code != 200 || !strings.Contains(a.Body, "workloadentry/shop/a: the condition Healthy of its status is not taken over: this server keeps no health") {
		t.Errorf("a server that keeps no health: %d %s", a.Code, a.Body)
	}
}
