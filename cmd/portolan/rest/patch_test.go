package rest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/resttest"
	"github.com/portolan-mesh/portolan/storage"
)

const (
	jsonPatch      = "application/json-patch+json"
	mergePatch     = "application/merge-patch+json"
	strategicPatch = "application/strategic-merge-patch+json"
	applyPatch     = "application/apply-patch+yaml"
)

// as sets the media type of a body.
func as(media string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set("Content-Type", media) }
}

// patchedObject is what tests read of an answer.
type patchedObject struct {
	Metadata metav1.ObjectMeta `json:"metadata"`
	Spec     map[string]any    `json:"spec"`
}

func patchedOf(t *testing.T, a resttest.Answer) (out patchedObject) {
	t.Helper()
	if err := json.Unmarshal([]byte(a.Body), &out); err != nil {
		t.Fatalf("%v: %s", err, a.Body)
	}
	return out
}

const reviewsEntry = `{"apiVersion":"networking.istio.io/v1","kind":"ServiceEntry","metadata":{"name":"reviews","namespace":"shop","labels":{"team":"a"}},
	"spec":{"hosts":["reviews.shop"],"location":"MESH_INTERNAL","resolution":"STATIC","ports":[{"number":80,"name":"http","protocol":"HTTP"}],"endpoints":[{"address":"10.0.0.1"}]}}`

// TestPatches: what each type of patch makes of an object.
func TestPatches(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		media, body string
		code        int
		says        string // in the answer
		unchanged   bool   // the version stays
	}{
		"merge sets, changes and takes away":     {mergePatch, `{"metadata":{"labels":{"team":null,"new":"x"}},"spec":{"hosts":["other.shop"]}}`, 200, `"labels":{"new":"x"}`, false},
		"merge that changes nothing":             {mergePatch, `{"metadata":{"labels":{"team":"a"}}}`, 200, `"team":"a"`, true},
		"merge of what only servers set":         {mergePatch, `{"metadata":{"generation":77,"creationTimestamp":"2001-01-01T00:00:00Z"},"status":{"x":1}}`, 200, `"generation":1`, true},
		"merge that makes it invalid":            {mergePatch, `{"spec":{"hosts":null}}`, 422, `spec.hosts`, true},
		"merge with an unknown field":            {mergePatch, `{"spec":{"host":"a"}}`, 400, `spec.host: unknown field`, true},
		"merge with another version":             {mergePatch, `{"metadata":{"resourceVersion":"1","labels":{"new":"x"}}}`, 409, `Conflict`, true},
		"merge with another uid":                 {mergePatch, `{"metadata":{"uid":"x","labels":{"new":"x"}}}`, 409, `uid`, true},
		"merge with another name":                {mergePatch, `{"metadata":{"name":"x"}}`, 400, `metadata.name`, true},
		"merge that is no JSON":                  {mergePatch, `{`, 400, `cannot be read`, true},
		"JSON patch":                             {jsonPatch, `[{"op":"test","path":"/metadata/labels/team","value":"a"},{"op":"add","path":"/spec/hosts/-","value":"b.shop"}]`, 200, `"b.shop"`, false},
		"JSON patch whose test fails":            {jsonPatch, `[{"op":"test","path":"/metadata/labels/team","value":"b"},{"op":"remove","path":"/spec"}]`, 422, `test`, true},
		"JSON patch of a path that is not there": {jsonPatch, `[{"op":"replace","path":"/spec/nothing/deep","value":1}]`, 422, `does not fit`, true},
		"JSON patch that is an object":           {jsonPatch, `{"op":"add"}`, 400, `cannot be read`, true},
		"strategic":                              {strategicPatch, `{"metadata":{"labels":{"new":"x"}}}`, 415, `accepted media types`, true},
		"with force":                             {mergePatch + "?force=true", `{}`, 422, `force`, true},
		"apply without a manager":                {applyPatch, reviewsEntry, 422, `fieldManager`, true},
		"apply of another kind":                  {applyPatch + "?fieldManager=x", strings.Replace(reviewsEntry, `"ServiceEntry"`, `"Gateway"`, 1), 400, `Gateway`, true},
		"apply of another name":                  {applyPatch + "?fieldManager=x", strings.Replace(reviewsEntry, `"name":"reviews"`, `"name":"other"`, 1), 400, `metadata.name`, true},
		"apply of an unknown field":              {applyPatch + "?fieldManager=x", strings.Replace(reviewsEntry, `"hosts"`, `"hostes"`, 1), 400, `spec.hostes`, true},
		"apply with another version":             {applyPatch + "?fieldManager=x", strings.Replace(reviewsEntry, `"labels"`, `"resourceVersion":"1","labels"`, 1), 409, `Conflict`, true},
		"apply that takes over":                  {applyPatch + "?fieldManager=x&force=true", strings.Replace(reviewsEntry, `10.0.0.1`, `10.0.0.2`, 1), 200, `10.0.0.2`, false},
		"apply that conflicts":                   {applyPatch + "?fieldManager=x", strings.Replace(reviewsEntry, `10.0.0.1`, `10.0.0.2`, 1), 409, `conflict with \"before-first-apply\" using networking.istio.io/v1: .spec.endpoints`, true},
		"a manager's name that is too long":      {mergePatch + "?fieldManager=" + strings.Repeat("x", 129), `{}`, 422, `fieldManager`, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := resttest.Start(t, 0, nil)
			made := patchedOf(t, s.Do(t, "POST", "/apis/networking.istio.io/v1/namespaces/shop/serviceentries", reviewsEntry))
			media, query, _ := strings.Cut(tc.media, "?")
			const path = "/apis/networking.istio.io/v1/namespaces/shop/serviceentries/reviews"
			got := s.Do(t, "PATCH", path+"?"+query, tc.body, as(media))
			if got.Code != tc.code || !strings.Contains(got.Body, tc.says) {
				t.Errorf("%d %s, want %d with %s", got.Code, got.Body, tc.code, tc.says)
			}
			now := patchedOf(t, s.Do(t, "GET", path, ""))
			if unchanged := now.Metadata.ResourceVersion == made.Metadata.ResourceVersion; unchanged != tc.unchanged {
				t.Errorf("the version is %s after %s", now.Metadata.ResourceVersion, made.Metadata.ResourceVersion)
			}
			dry := s.Do(t, "PATCH", path+"?dryRun=All&"+query, tc.body, as(media))
			if again := patchedOf(t, s.Do(t, "GET", path, "")); again.Metadata.ResourceVersion != now.Metadata.ResourceVersion || dry.Code == 500 {
				t.Errorf("a dry run wrote, or failed: %d %s", dry.Code, dry.Body)
			}
		})
	}
}

// fieldsOf returns the fields of a manager in an answer.
func fieldsOf(a resttest.Answer, manager string) string {
	_, after, _ := strings.Cut(a.Body, `{"manager":"`+manager+`"`)
	fields, _, _ := strings.Cut(after, `{"manager"`)
	return fields
}

// TestServerSideApply: managers own what they apply, conflict over it, and take away what they
// apply no more.
func TestServerSideApply(t *testing.T) {
	t.Parallel()
	s := resttest.Start(t, 0, nil)
	const path = "/apis/networking.istio.io/v1/namespaces/shop/serviceentries/reviews"
	apply := func(manager, body string, code int) patchedObject {
		t.Helper()
		got := s.Do(t, "PATCH", path+"?fieldManager="+manager, body, as(applyPatch))
		if got.Code != code {
			t.Fatalf("%d %s, want %d", got.Code, got.Body, code)
		}
		return patchedOf(t, got)
	}
	first := apply("a", reviewsEntry, 201)
	if m := first.Metadata.ManagedFields; len(m) != 1 || m[0].Manager != "a" || m[0].Operation != "Apply" || m[0].APIVersion != "networking.istio.io/v1" {
		t.Fatalf("managed fields %+v", m)
	}
	if again := apply("a", reviewsEntry, 200); again.Metadata.ResourceVersion != first.Metadata.ResourceVersion {
		t.Errorf("the same again is a change: version %s after %s", again.Metadata.ResourceVersion, first.Metadata.ResourceVersion)
	}
	label := `{"apiVersion":"networking.istio.io/v1beta1","kind":"ServiceEntry","metadata":{"name":"reviews","labels":{"tier":"front"}}}`
	const beta = "/apis/networking.istio.io/v1beta1/namespaces/shop/serviceentries/reviews"
	if got := s.Do(t, "PATCH", beta+"?fieldManager=b", label, as(applyPatch)); got.Code != 200 {
		t.Fatalf("another manager, another version: %d %s", got.Code, got.Body)
	}
	without := strings.Replace(reviewsEntry, `"labels":{"team":"a"}`, `"labels":{}`, 1)
	if o := apply("a", without, 200); o.Metadata.Labels["team"] != "" || o.Metadata.Labels["tier"] != "front" {
		t.Errorf("labels %v: a took its own away, and left those of b", o.Metadata.Labels)
	}
	conflict := s.Do(t, "PATCH", path+"?fieldManager=a", strings.Replace(reviewsEntry, `"team":"a"`, `"tier":"back"`, 1), as(applyPatch))
	if conflict.Code != 409 || !strings.Contains(conflict.Body, `conflict with \"b\": .metadata.labels.tier`) ||
		!strings.Contains(conflict.Body, "FieldManagerConflict") {
		t.Errorf("%d %s", conflict.Code, conflict.Body)
	}

	// A PUT of what was read gives its program what it changes.
	body := strings.Replace(s.Do(t, "GET", path, "").Body, `"tier":"front"`, `"tier":"back"`, 1)
	put := s.Do(t, "PUT", path, body, func(r *http.Request) { r.Header.Set("User-Agent", "curl/8") })
	if put.Code != 200 {
		t.Fatalf("%d %s", put.Code, put.Body)
	}
	if patchedOf(t, put).Metadata.Labels["tier"] != "back" || strings.Contains(fieldsOf(put, "b"), "f:tier") || !strings.Contains(fieldsOf(put, "curl"), "f:tier") {
		t.Errorf("the field is not its changer's: %s", put.Body)
	}
	var managers []string
	for _, m := range patchedOf(t, put).Metadata.ManagedFields {
		managers = append(managers, m.Manager+" "+string(m.Operation))
	}
	if got := strings.Join(managers, ", "); got != "a Apply, curl Update" {
		t.Errorf("managers %s in %s", got, put.Body)
	}

	// A client may take all managed fields away.
	if got := s.Do(t, "PATCH", path, `{"metadata":{"managedFields":[]}}`, as(mergePatch)); got.Code != 200 || strings.Contains(got.Body, "managedFields") {
		t.Errorf("%d %s", got.Code, got.Body)
	}
}

// TestNobodyPaysForManagedFields: an object that nobody has applied server-side has none, whoever
// writes it.
func TestNobodyPaysForManagedFields(t *testing.T) {
	t.Parallel()
	s := resttest.Start(t, 0, nil)
	const list = "/apis/networking.istio.io/v1/namespaces/shop/serviceentries"
	s.Do(t, "POST", list+"?fieldManager=x", reviewsEntry)
	s.Do(t, "PATCH", list+"/reviews?fieldManager=y", `{"metadata":{"labels":{"a":"b"}}}`, as(mergePatch))
	s.Do(t, "PUT", list+"/reviews?fieldManager=z", reviewsEntry)
	if got := s.Do(t, "GET", list+"/reviews", ""); strings.Contains(got.Body, "managedFields") {
		t.Error(got.Body)
	}
}

// applyBatch is a batch that applies an object.
func applyBatch(object, more string) string {
	return `{"apiVersion":"portolan.io/v1","kind":"Batch"` + more + `,"operations":[{"verb":"apply","object":` + object + `}]}`
}

// TestApplyInABatch: a batch's apply of an object that somebody applies server-side keeps what others
// have set, conflicts where it differs, and takes away what it applies no more.
func TestApplyInABatch(t *testing.T) {
	t.Parallel()
	s := resttest.Start(t, 0, nil)
	const path, batches = "/apis/networking.istio.io/v1/namespaces/shop/serviceentries/reviews", "/apis/portolan.io/v1/batches"
	cli := func(r *http.Request) { r.Header.Set("User-Agent", "portolan/v1") }
	post := func(body string, code int) resttest.Answer {
		t.Helper()
		got := s.Do(t, "POST", batches, body, cli)
		if got.Code != code {
			t.Fatalf("%d %s, want %d", got.Code, got.Body, code)
		}
		return got
	}
	post(applyBatch(reviewsEntry, ""), 200)
	argo := `{"apiVersion":"networking.istio.io/v1","kind":"ServiceEntry","metadata":{"name":"reviews","annotations":{"x/y":"z"}},"spec":{"location":"MESH_EXTERNAL"}}`
	if got := s.Do(t, "PATCH", path+"?fieldManager=argo&force=true", argo, as(applyPatch)); got.Code != 200 {
		t.Fatalf("%d %s", got.Code, got.Body)
	}
	refused := post(applyBatch(reviewsEntry, ""), 409)
	if !strings.Contains(refused.Body, `serviceentry/shop/reviews: conflict with \"argo\"`) {
		t.Error(refused.Body)
	}
	mine := strings.Replace(strings.Replace(reviewsEntry, `"location":"MESH_INTERNAL",`, "", 1), `"labels":{"team":"a"}`, `"labels":{"new":"b"}`, 1)
	post(applyBatch(mine, ""), 200)
	if again := post(applyBatch(mine, ""), 200); !strings.Contains(again.Body, `"unchanged"`) {
		t.Error(again.Body)
	}
	o := patchedOf(t, s.Do(t, "GET", path, ""))
	if o.Metadata.Labels["team"] != "" || o.Metadata.Labels["new"] != "b" || o.Metadata.Annotations["x/y"] != "z" || o.Spec["location"] != "MESH_EXTERNAL" {
		t.Errorf("labels %v, annotations %v, location %v", o.Metadata.Labels, o.Metadata.Annotations, o.Spec["location"])
	}
	post(applyBatch(reviewsEntry, `,"force":true`), 200)
	if o := patchedOf(t, s.Do(t, "GET", path, "")); o.Spec["location"] != "MESH_INTERNAL" || o.Metadata.Annotations["x/y"] != "z" {
		t.Errorf("after force: %v, %v", o.Spec["location"], o.Metadata.Annotations)
	}
}

// TestServerSideBatch: a batch that applies server-side keeps the managers of its objects as a
// PATCH does, in one change.
func TestServerSideBatch(t *testing.T) {
	t.Parallel()
	s := resttest.Start(t, 0, nil)
	const path = "/apis/networking.istio.io/v1/namespaces/shop/serviceentries/reviews"
	post := func(body, manager string, code int, says string) {
		t.Helper()
		query := "?dryRun=All"
		if code == 200 {
			query = "?x=y"
		}
		if manager != "" {
			query += "&fieldManager=" + manager
		}
		got := s.Do(t, "POST", batches+query, applyBatch(body, `,"serverSide":true`), func(r *http.Request) { r.Header.Set("User-Agent", "portolan/v1") })
		if got.Code != code || !strings.Contains(got.Body, says) {
			t.Fatalf("%d %s, want %d and %s", got.Code, got.Body, code, says)
		}
	}
	part := func(labels string) string {
		return `{"apiVersion":"networking.istio.io/v1","kind":"ServiceEntry","metadata":{"name":"reviews","namespace":"shop","labels":` + labels + `}}`
	}
	post(part(`{"tier":"back"}`), "", 422, `operations[0].object.spec`) // what results would not be whole
	post(reviewsEntry, "", 200, `"created"`)
	post(part(`{"tier":"back"}`), "tiers", 200, `"configured"`)
	post(part(`{"tier":"front"}`), "other", 409, `conflict with \"tiers\"`)
	post(strings.Replace(reviewsEntry, `"team":"a"`, `"new":"b"`, 1), "", 200, `"configured"`)
	o := patchedOf(t, s.Do(t, "GET", path, ""))
	if o.Metadata.Labels["team"] != "" || o.Metadata.Labels["new"] != "b" || o.Metadata.Labels["tier"] != "back" {
		t.Errorf("labels %v", o.Metadata.Labels)
	}
	post(part(`{}`), "tiers", 200, `"configured"`)
	if o := patchedOf(t, s.Do(t, "GET", path, "")); o.Metadata.Labels["tier"] != "" || o.Spec["location"] != "MESH_INTERNAL" {
		t.Errorf("labels %v, spec %v", o.Metadata.Labels, o.Spec)
	}
	post(reviewsEntry, strings.Repeat("x", 129), 422, `fieldManager`)
}

// TestServerSideBatchAfterAnother: what batches have made without managers belongs to a batch that
// names none. One that names its manager sets its own fields, and takes none away.
func TestServerSideBatchAfterAnother(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		manager, body, team string
		location            any
	}{
		"the same":        {"", strings.Replace(strings.Replace(reviewsEntry, `"location":"MESH_INTERNAL",`, `"location":"MESH_EXTERNAL",`, 1), `"team":"a"`, `"new":"b"`, 1), "", "MESH_EXTERNAL"},
		"one with a name": {"weights", `{"apiVersion":"networking.istio.io/v1","kind":"ServiceEntry","metadata":{"name":"reviews","namespace":"shop","labels":{"new":"b"}}}`, "a", "MESH_INTERNAL"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := resttest.Start(t, 0, nil)
			if got := s.Do(t, "POST", batches, applyBatch(reviewsEntry, "")); got.Code != 200 {
				t.Fatalf("%d %s", got.Code, got.Body)
			}
			query := ""
			if tc.manager != "" {
				query = "?fieldManager=" + tc.manager
			}
			if got := s.Do(t, "POST", batches+query, applyBatch(tc.body, `,"serverSide":true`)); got.Code != 200 {
				t.Fatalf("%d %s", got.Code, got.Body)
			}
			o := patchedOf(t, s.Do(t, "GET", "/apis/networking.istio.io/v1/namespaces/shop/serviceentries/reviews", ""))
			if o.Spec["location"] != tc.location || o.Metadata.Labels["team"] != tc.team || o.Metadata.Labels["new"] != "b" {
				t.Errorf("labels %v, location %v", o.Metadata.Labels, o.Spec["location"])
			}
		})
	}
}

// TestDeleteCollection: what a selector selects goes in one change, and only in one namespace.
func TestDeleteCollection(t *testing.T) {
	t.Parallel()
	s := resttest.Start(t, 0, nil)
	const list = "/apis/networking.istio.io/v1/namespaces/shop/serviceentries"
	for name, team := range map[string]string{"one": "a", "two": "a", "three": "b"} {
		body := strings.NewReplacer(`"name":"reviews"`, `"name":"`+name+`"`, `"team":"a"`, `"team":"`+team+`"`, "reviews.shop", name+".shop").Replace(reviewsEntry)
		if got := s.Do(t, "POST", list, body); got.Code != 201 {
			t.Fatal(got)
		}
	}
	elsewhere := strings.Replace(reviewsEntry, `"namespace":"shop"`, `"namespace":"bank"`, 1)
	s.Do(t, "POST", strings.Replace(list, "shop", "bank", 1), elsewhere)
	if got := s.Do(t, "DELETE", list+"?labelSelector=team%3Da&dryRun=All", ""); got.Code != 200 || strings.Count(got.Body, `"kind":"ServiceEntry"`) != 2 {
		t.Errorf("a dry run: %d %s", got.Code, got.Body)
	}
	before := s.Store.Version()
	got := s.Do(t, "DELETE", list+"?labelSelector=team%3Da", "")
	if got.Code != 200 || strings.Count(got.Body, `"kind":"ServiceEntry"`) != 2 || !strings.Contains(got.Body, `"kind":"ServiceEntryList"`) {
		t.Errorf("%d %s", got.Code, got.Body)
	}
	records := s.Do(t, "GET", "/apis/portolan.io/v1/records?after="+before, "")
	if n := strings.Count(records.Body, `"revision"`); n != 1 {
		t.Errorf("%d changes: %s", n, records.Body)
	}
	if left := s.Do(t, "GET", "/apis/networking.istio.io/v1/serviceentries", ""); !strings.Contains(left.Body, `"three"`) || !strings.Contains(left.Body, `"bank"`) || strings.Contains(left.Body, `"one"`) {
		t.Error(left.Body)
	}
	if got := s.Do(t, "DELETE", "/apis/networking.istio.io/v1/serviceentries", ""); got.Code != 405 {
		t.Errorf("of all namespaces: %d %s", got.Code, got.Body)
	}
	if got := s.Do(t, "DELETE", list+"?labelSelector=team%3Dnone", ""); got.Code != 200 || !strings.Contains(got.Body, `"items":[]`) {
		t.Errorf("of none: %d %s", got.Code, got.Body)
	}
}

// twoAtOnce is a store that takes two operations at a time.
type twoAtOnce struct{ rest.Store }

// Apply implements storage.Batcher.
func (n twoAtOnce) Apply(ctx context.Context, ops []storage.Op) (string, []storage.Result, error) {
	if len(ops) > 2 {
		return "", nil, fmt.Errorf("%w: %d operations", storage.ErrTooLarge, len(ops))
	}
	return n.Store.Apply(ctx, ops)
}

// TestDeleteCollectionInParts: where the store takes few operations at a time, a collection goes in
// parts.
func TestDeleteCollectionInParts(t *testing.T) {
	t.Parallel()
	s := resttest.Start(t, 0, func(o *rest.Options) { o.Store = twoAtOnce{o.Store} })
	const list = "/apis/networking.istio.io/v1/namespaces/shop/serviceentries"
	for i := range 5 {
		name := fmt.Sprint("n", i)
		s.Do(t, "POST", list, strings.NewReplacer(`"name":"reviews"`, `"name":"`+name+`"`, "reviews.shop", name+".shop").Replace(reviewsEntry))
	}
	if got := s.Do(t, "DELETE", list, ""); got.Code != 200 || strings.Count(got.Body, `"kind":"ServiceEntry"`) != 5 {
		t.Errorf("%d %s", got.Code, got.Body)
	}
	if left := s.Do(t, "GET", list, ""); !strings.Contains(left.Body, `"items":[]`) {
		t.Error(left.Body)
	}
}
