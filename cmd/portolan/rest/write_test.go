package rest_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/resttest"
	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
)

func TestObjectLivesAndDies(t *testing.T) {
	t.Parallel()
	s := resttest.Start(t, 0, nil)
	made := create(t, s, "web", "")
	if made.Namespace != "shop" || made.UID == "" || made.ResourceVersion == "" || made.Generation != 1 || made.CreationTimestamp.IsZero() {
		t.Errorf("created with %+v", made)
	}
	if got := parse[object](t, s.Do(t, "GET", shopEntries+"/web", "").Body); got.Metadata.ResourceVersion != made.ResourceVersion {
		t.Errorf("read %s after writing %s", got.Metadata.ResourceVersion, made.ResourceVersion)
	}
	older := parse[object](t, s.Do(t, "GET", "/apis/networking.istio.io/v1beta1/namespaces/shop/serviceentries/web", "").Body)
	if older.APIVersion != "networking.istio.io/v1beta1" || older.Metadata.UID != made.UID {
		t.Errorf("under v1beta1 it is %+v", older)
	}
	a := s.Do(t, "PUT", shopEntries+"/web", entry("web", `,"labels":{"a":"b"},"resourceVersion":"`+made.ResourceVersion+`"`))
	changed := parse[object](t, a.Body).Metadata
	if a.Code != 200 || changed.ResourceVersion == made.ResourceVersion || changed.UID != made.UID || changed.Labels["a"] != "b" {
		t.Errorf("replaced: %d %+v", a.Code, changed)
	}
	a = s.Do(t, "PUT", shopEntries+"/web", entry("web", `,"labels":{"a":"b"}`))
	if same := parse[object](t, a.Body).Metadata; same.ResourceVersion != changed.ResourceVersion {
		t.Errorf("an equal object was written: %d %+v", a.Code, same)
	}
	a = s.Do(t, "DELETE", shopEntries+"/web", "")
	if status := parse[metav1.Status](t, a.Body); a.Code != 200 || status.Status != metav1.StatusSuccess || status.Details.UID != made.UID {
		t.Errorf("deleted: %d %s", a.Code, a.Body)
	}
	if a := s.Do(t, "GET", shopEntries+"/web", ""); a.Code != 404 {
		t.Errorf("still there: %d", a.Code)
	}
}

func TestYAMLBody(t *testing.T) {
	t.Parallel()
	s := resttest.Start(t, 0, nil)
	asYAML := func(r *http.Request) { r.Header.Set("Content-Type", "application/yaml; charset=utf-8") }
	body := "apiVersion: networking.istio.io/v1alpha3\nkind: ServiceEntry\nmetadata: {name: web}\nspec:\n  hosts: [web.shop]\n  resolution: STATIC\n  ports: [{number: 80, name: http, protocol: HTTP}]\n"
	a := s.Do(t, "POST", shopEntries, body, asYAML)
	if made := parse[object](t, a.Body); a.Code != 201 || made.Metadata.Namespace != "shop" {
		t.Fatalf("%d %s", a.Code, a.Body)
	}
	if a := s.Do(t, "POST", shopEntries, body+"---\n"+body, asYAML); a.Code != 400 || !strings.Contains(a.Body, "batch") {
		t.Errorf("two documents: %d %s", a.Code, a.Body)
	}
	stale := strings.Replace(body, "{name: web}", "{name: web, uid: another}", 1)
	if a := s.Do(t, "PUT", shopEntries+"/web", stale, asYAML); a.Code != 409 {
		t.Errorf("another uid: %d %s", a.Code, a.Body)
	}
}

// TestARefusedCreateNamesItsObject: by the details of the Status, kubectl tells users
// which object of a file was refused.
func TestARefusedCreateNamesItsObject(t *testing.T) {
	t.Parallel()
	unknown := strings.Replace(entry("x", ""), `"spec":{`, `"more":1,"spec":{`, 1)
	for _, test := range []struct {
		name, body, yaml string
		refuses          error
		code             int
	}{
		{name: "unknown field", body: unknown, code: 400},
		{name: "unknown field in YAML", yaml: "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {name: x, namespace: shop}\nmore: 1\n", code: 400},
		{name: "finalizers", body: entry("x", `,"finalizers":["a/b"]`), code: 422},
		{name: "version", body: entry("x", `,"resourceVersion":"3"`), code: 400},
		{name: "rules", body: strings.Replace(entry("x", ""), `"number":80`, `"number":800000`, 1), code: 422},
		{name: "invalid for the store", body: entry("x", ""), refuses: storage.ErrInvalid, code: 422},
		{name: "too large for the store", body: entry("x", ""), refuses: storage.ErrTooLarge, code: 413},
		{name: "read-only store", body: entry("x", ""), refuses: storage.ErrReadOnly, code: 403},
		{name: "store that is away", body: entry("x", ""), refuses: storage.ErrUnavailable, code: 503},
		{name: "store that has it", body: entry("x", ""), refuses: storage.ErrExists, code: 409},
	} {
		s := resttest.Start(t, 0, func(o *rest.Options) {
			if test.refuses != nil {
				o.Store = failing{o.Store, fmt.Errorf("create serviceentry/shop/x: %w", test.refuses)}
			}
		})
		a := s.Do(t, "POST", shopEntries, test.body+test.yaml, func(r *http.Request) {
			if test.yaml != "" {
				r.Header.Set("Content-Type", "application/yaml")
			}
		})
		status := parse[metav1.Status](t, a.Body)
		d := status.Details
		if a.Code != test.code || d == nil || d.Name != "x" || d.Group != "networking.istio.io" || d.Kind != "ServiceEntry" && d.Kind != "serviceentries" {
			t.Errorf("%s: %d %s", test.name, a.Code, a.Body)
		}
		if !strings.Contains(status.Message, "serviceentry/shop/x") && !strings.Contains(status.Message, `"x"`) {
			t.Errorf("%s: the message does not name it: %s", test.name, status.Message)
		}
		if test.code == 503 && d.RetryAfterSeconds == 0 {
			t.Errorf("%s: nothing says when to try again: %s", test.name, a.Body)
		}
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	s := resttest.Start(t, 0, nil)
	create(t, s, "there", "")
	header := func(name, value string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set(name, value) }
	}
	invalid := strings.NewReplacer(`"number":80`, `"number":800000`, `["x.shop"]`, `[]`).Replace(entry("x", ""))
	tests := []struct {
		name               string
		method, path, body string
		edit               func(*http.Request)
		code               int32
		reason             metav1.StatusReason
		says               []string
	}{
		{name: "broken JSON", method: "POST", path: shopEntries, body: `{"a":`, code: 400, reason: "BadRequest", says: []string{"JSON"}},
		{name: "unknown fields, all of them", method: "POST", path: shopEntries,
			body: strings.Replace(entry("x", ""), `"spec":{`, `"more":1,"spec":{"hots":[],`, 1), code: 400, reason: "BadRequest", says: []string{"spec.hots: unknown field", "more: unknown field"}},
		{name: "unknown kind", method: "POST", path: shopEntries, body: strings.Replace(entry("x", ""), "ServiceEntry", "Pod", 1), code: 400, reason: "BadRequest", says: []string{"Pod"}},
		{name: "kind of another path", method: "POST", path: shop + "/gateways", body: entry("x", ""), code: 400, reason: "BadRequest", says: []string{"ServiceEntry", "Gateway"}},
		{name: "another namespace", method: "POST", path: strings.Replace(shopEntries, "shop", "bank", 1), body: entry("x", ""), code: 400, reason: "BadRequest", says: []string{`"shop"`, `"bank"`}},
		{name: "another name", method: "PUT", path: shopEntries + "/there", body: entry("x", ""), code: 400, reason: "BadRequest", says: []string{"metadata.name"}},
		{name: "no name", method: "POST", path: shopEntries, body: entry("", ""), code: 422, reason: "Invalid", says: []string{"metadata.name"}},
		{name: "finalizers", method: "POST", path: shopEntries, body: entry("x", `,"finalizers":["a/b"]`), code: 422, reason: "Invalid", says: []string{"serviceentry/shop/x", "metadata.finalizers: is not supported"}},
		{name: "finalizers and what cannot be read", method: "POST", path: shopEntries, body: entry("x", `,"finalizers":["a/b"],"more":1`), code: 400, reason: "BadRequest", says: []string{"metadata.finalizers", "metadata.more"}},
		{name: "owners", method: "POST", path: shopEntries, body: entry("x", `,"ownerReferences":[{"name":"a","controller":true},{"apiVersion":"v1","kind":"A","name":"a","uid":"u","controller":true}]`),
			code: 422, reason: "Invalid", says: []string{"metadata.ownerReferences[0].apiVersion: is missing", "metadata.ownerReferences[0].kind", "metadata.ownerReferences[0].uid", "metadata.ownerReferences[1].controller"}},
		{name: "packed body", method: "POST", path: shopEntries, body: entry("x", ""), edit: header("Content-Encoding", "gzip"), code: 415, reason: "UnsupportedMediaType", says: []string{"gzip"}},
		{name: "version on create", method: "POST", path: shopEntries, body: entry("x", `,"resourceVersion":"3"`), code: 400, reason: "BadRequest", says: []string{"metadata.resourceVersion"}},
		{name: "invalid, all faults", method: "POST", path: shopEntries, body: invalid, code: 422, reason: "Invalid", says: []string{"spec.hosts", "spec.ports[0].number"}},
		{name: "exists", method: "POST", path: shopEntries, body: entry("there", ""), code: 409, reason: "AlreadyExists", says: []string{`serviceentries.networking.istio.io "there"`}},
		{name: "stale", method: "PUT", path: shopEntries + "/there", body: entry("there", `,"resourceVersion":"99","labels":{"a":"b"}`), code: 409, reason: "Conflict", says: []string{"99", "the store has 2"}},
		{name: "another uid", method: "PUT", path: shopEntries + "/there", body: entry("there", `,"uid":"u"`), code: 409, reason: "Conflict", says: []string{"uid"}},
		{name: "replace of nothing", method: "PUT", path: shopEntries + "/gone", body: entry("gone", ""), code: 404, reason: "NotFound"},
		{name: "get of nothing", method: "GET", path: shopEntries + "/gone", code: 404, reason: "NotFound", says: []string{`"gone" not found`}},
		{name: "delete of nothing", method: "DELETE", path: shopEntries + "/gone", code: 404, reason: "NotFound"},
		{name: "delete with a stale version", method: "DELETE", path: shopEntries + "/there", body: `{"preconditions":{"resourceVersion":"99"}}`, code: 409, reason: "Conflict", says: []string{"99"}},
		{name: "delete with another uid", method: "DELETE", path: shopEntries + "/there", body: `{"preconditions":{"uid":"u"}}`, code: 409, reason: "Conflict"},
		{name: "delete options that are none", method: "DELETE", path: shopEntries + "/there", body: `{"precondition":{}}`, code: 400, reason: "BadRequest", says: []string{"precondition"}},
		{name: "dry run", method: "POST", path: shopEntries + "?dryRun=Some", body: entry("x", ""), code: 422, reason: "Invalid", says: []string{"dryRun"}},
		{name: "dry run of delete", method: "DELETE", path: shopEntries + "/there", body: `{"dryRun":["Some"]}`, code: 422, reason: "Invalid", says: []string{"dryRun"}},
		{name: "patch", method: "PATCH", path: shopEntries + "/there", body: `{}`, code: 415, reason: "UnsupportedMediaType", says: []string{"application/merge-patch+json"}},
		{name: "delete of all", method: "DELETE", path: entries, code: 405, reason: "MethodNotAllowed", says: []string{"GET"}},
		{name: "create without namespace", method: "POST", path: entries, body: entry("x", ""), code: 405, reason: "MethodNotAllowed"},
		{name: "form", method: "POST", path: shopEntries, body: entry("x", ""), edit: header("Content-Type", "text/plain"), code: 415, reason: "UnsupportedMediaType", says: []string{"text/plain"}},
		{name: "page of another site", method: "DELETE", path: shopEntries + "/there", edit: header("Sec-Fetch-Site", "cross-site"), code: 403, reason: "Forbidden", says: []string{"cross-origin"}},
		{name: "name of another server", method: "GET", path: entries, edit: func(r *http.Request) { r.Host = "evil.example" }, code: 403, reason: "Forbidden", says: []string{"evil.example"}},
		{name: "too large", method: "POST", path: shopEntries, body: `"` + strings.Repeat("x", 33<<20) + `"`, code: 413, reason: "RequestEntityTooLarge", says: []string{"32768 KiB"}},
		{name: "unknown resource", method: "GET", path: "/apis/networking.istio.io/v1/pods", code: 404, reason: "NotFound", says: []string{"pods"}},
		{name: "unknown version", method: "GET", path: "/apis/networking.istio.io/v1/envoyfilters", code: 404, reason: "NotFound", says: []string{"use v1alpha3"}},
		{name: "unknown group", method: "GET", path: "/apis/apps", code: 404, reason: "NotFound", says: []string{"apps"}},
		{name: "unknown path", method: "GET", path: "/openapi/v4", code: 404, reason: "NotFound", says: []string{"/openapi/v4"}},
		{name: "object without namespace", method: "GET", path: entries + "/x", code: 404, reason: "NotFound", says: []string{"namespaces/"}},
		{name: "version that is none", method: "GET", path: entries + "?resourceVersion=x", code: 400, reason: "BadRequest", says: []string{"resourceVersion"}},
		{name: "label selector", method: "GET", path: entries + "?labelSelector=a(", code: 400, reason: "BadRequest", says: []string{"labelSelector"}},
		{name: "field selector", method: "GET", path: entries + "?fieldSelector=spec.hosts%3Dx", code: 400, reason: "BadRequest", says: []string{"spec.hosts"}},
		{name: "continue", method: "GET", path: entries + "?continue=x", code: 400, reason: "BadRequest", says: []string{"continue"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			edit := test.edit
			if edit == nil {
				edit = func(*http.Request) {}
			}
			before := s.Store.Version()
			a := s.Do(t, test.method, test.path, test.body, edit)
			status := parse[metav1.Status](t, a.Body)
			if int32(a.Code) != test.code || status.Code != test.code || status.Reason != test.reason ||
				status.Kind != "Status" || status.APIVersion != "v1" || status.Status != metav1.StatusFailure {
				t.Errorf("%d %s", a.Code, a.Body)
			}
			for _, word := range test.says {
				if !strings.Contains(status.Message, word) {
					t.Errorf("says nothing of %s: %s", word, a.Body)
				}
			}
			if s.Store.Version() != before {
				t.Error("the store was written")
			}
		})
	}
}

// failing is a store whose mutations fail.
type failing struct {
	rest.Store
	err error
}

func (f failing) Create(context.Context, *config.Config) (string, error) { return "", f.err }

func (f failing) Apply(context.Context, []storage.Op) (string, []storage.Result, error) {
	return "", nil, f.err
}

func TestErrorsOfTheStore(t *testing.T) {
	t.Parallel()
	tests := []struct {
		err    error
		code   int
		reason metav1.StatusReason
	}{
		{storage.ErrInvalid, 422, metav1.StatusReasonInvalid},
		{storage.ErrTooLarge, 413, metav1.StatusReasonRequestEntityTooLarge},
		{storage.ErrReadOnly, 403, metav1.StatusReasonForbidden},
		{storage.ErrUnavailable, 503, metav1.StatusReasonServiceUnavailable},
		{storage.ErrOutcomeUnknown, 504, metav1.StatusReasonTimeout},
		{context.DeadlineExceeded, 504, metav1.StatusReasonTimeout},
		{errors.New("something"), 500, metav1.StatusReasonInternalError},
	}
	for _, test := range tests {
		t.Run(test.err.Error(), func(t *testing.T) {
			t.Parallel()
			s := resttest.Start(t, 0, func(o *rest.Options) {
				o.Store = failing{o.Store, fmt.Errorf("create it: %w", test.err)}
			})
			for path, body := range map[string]string{shopEntries: entry("x", ""), batches: batchOf(`{"verb":"apply","object":` + entry("x", "") + `}`)} {
				a := s.Do(t, "POST", path, body)
				if status := parse[metav1.Status](t, a.Body); a.Code != test.code || status.Reason != test.reason || !strings.Contains(status.Message, test.err.Error()) {
					t.Errorf("%s: %d %s", path, a.Code, a.Body)
				}
				if (a.Header.Get("Retry-After") != "") != (test.code == 503) {
					t.Errorf("Retry-After %q", a.Header.Get("Retry-After"))
				}
			}
		})
	}
}

func TestWarningsAreInTheHeader(t *testing.T) {
	t.Parallel()
	s := resttest.Start(t, 0, nil)
	a := s.Do(t, "POST", "/apis/telemetry.istio.io/v1/namespaces/shop/telemetries",
		`{"apiVersion":"telemetry.istio.io/v1","kind":"Telemetry","metadata":{"name":"x"},"spec":{"metrics":[{"reportingInterval":"5s"}]}}`)
	if w := a.Header.Get("Warning"); a.Code != 201 || !strings.HasPrefix(w, `299 - "`) {
		t.Errorf("%d, warning %q", a.Code, w)
	}
}

// Every write is seen by a later read, and of many concurrent writers at a version one
// wins.
func TestConcurrentWriters(t *testing.T) {
	t.Parallel()
	s := resttest.Start(t, 0, nil)
	first := create(t, s, "shared", "")
	var writers sync.WaitGroup
	won := make(chan int, 8)
	for i := range 8 {
		writers.Go(func() {
			name := fmt.Sprintf("own-%d", i)
			create(t, s, name, "")
			if a := s.Do(t, "GET", shopEntries+"/"+name, ""); a.Code != 200 {
				t.Errorf("%s after its creation: %d", name, a.Code)
			}
			body := entry("shared", fmt.Sprintf(`,"labels":{"by":"%d"},"resourceVersion":"%s"`, i, first.ResourceVersion))
			switch a := s.Do(t, "PUT", shopEntries+"/shared", body); a.Code {
			case 200:
				won <- i
			case 409:
			default:
				t.Errorf("%d %s", a.Code, a.Body)
			}
		})
	}
	writers.Wait()
	close(won)
	winner, ok := <-won
	_, more := <-won
	if !ok || more {
		t.Fatal("not exactly one writer won")
	}
	got := parse[object](t, s.Do(t, "GET", shopEntries+"/shared", "").Body)
	if got.Metadata.Labels["by"] != fmt.Sprint(winner) {
		t.Errorf("the store has the change of %s, and %d was told it won", got.Metadata.Labels["by"], winner)
	}
}
