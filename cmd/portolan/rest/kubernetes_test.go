package rest_test

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/resttest"
	"github.com/portolan-mesh/portolan/storage"
)

// Behaviour that clients of Kubernetes rely on.

func TestABodyWithoutAContentTypeIsJSON(t *testing.T) {
	t.Parallel()
	s := resttest.Start(t, 0, nil)
	untyped := func(r *http.Request) { r.Header.Del("Content-Type") }
	if a := s.Do(t, "POST", shopEntries, entry("web", ""), untyped); a.Code != 201 {
		t.Errorf("%d %s", a.Code, a.Body)
	}
	foreign := func(r *http.Request) {
		untyped(r)
		r.Header.Set("Origin", "https://evil.example")
	}
	if a := s.Do(t, "POST", shopEntries, entry("evil", ""), foreign); a.Code != 403 {
		t.Errorf("of a page of another site: %d %s", a.Code, a.Body)
	}
}

// unnamed returns entry without a name.
func unnamed(meta string) string { return strings.Replace(entry("x", meta), `"name":"x",`, "", 1) }

// takenNames is a store that reports the first names to be created as taken.
type takenNames struct {
	rest.Store
	left  atomic.Int64
	tried []string
}

func (s *takenNames) Apply(ctx context.Context, ops []storage.Op) (string, []storage.Result, error) {
	s.tried = append(s.tried, ops[0].Config.Name)
	if s.left.Add(-1) >= 0 {
		return "", nil, &storage.OpError{Err: storage.ErrExists}
	}
	return s.Store.Apply(ctx, ops)
}

func TestGeneratedNames(t *testing.T) {
	t.Parallel()
	taken := &takenNames{}
	s := resttest.Start(t, 0, func(o *rest.Options) {
		taken.Store = o.Store
		o.Store = taken
	})
	post := func(metadata string) (int, metav1.PartialObjectMetadata) {
		a := s.Do(t, "POST", shopEntries, unnamed(metadata))
		return a.Code, parse[metav1.PartialObjectMetadata](t, a.Body)
	}
	taken.left.Store(3)
	code, got := post(`,"generateName":"web-"`)
	if code != 201 || !strings.HasPrefix(got.Name, "web-") || len(got.Name) != len("web-")+5 {
		t.Errorf("%d %q", code, got.Name)
	}
	if tried := slices.Compact(slices.Sorted(slices.Values(taken.tried))); len(tried) != 4 || taken.tried[3] != got.Name {
		t.Errorf("tried %q", taken.tried)
	}
	if a := s.Do(t, "GET", shopEntries+"/"+got.Name, ""); a.Code != 200 {
		t.Errorf("%d %s", a.Code, a.Body)
	}
	if code, got := post(`,"generateName":"` + strings.Repeat("a", 80) + `"`); code != 201 || len(got.Name) != 63 {
		t.Errorf("of a long prefix: %d %q", code, got.Name)
	}
	taken.left.Store(1000)
	if code, _ := post(`,"generateName":"web-"`); code != 409 {
		t.Errorf("with no name left: %d", code)
	}
	taken.left.Store(0)
	if a := s.Do(t, "POST", shopEntries, entry("mine", `,"generateName":"web-"`)); a.Code != 201 || parse[metav1.PartialObjectMetadata](t, a.Body).Name != "mine" {
		t.Errorf("with a name: %d %s", a.Code, a.Body)
	}
	if a := s.Do(t, "POST", shopEntries+"?dryRun=All", unnamed(`,"generateName":"web-"`)); a.Code != 201 {
		t.Errorf("dry run: %d %s", a.Code, a.Body)
	}
	if a := s.Do(t, "POST", "/apis/portolan.io/v1/batches", `{"apiVersion":"portolan.io/v1","kind":"Batch","operations":[{"verb":"create","object":`+
		unnamed(`,"generateName":"web-"`)+`}]}`); a.Code != 422 || !strings.Contains(a.Body, "generateName is for a create by itself") {
		t.Errorf("in a batch: %d %s", a.Code, a.Body)
	}
}

func TestOwnerReferencesAreKept(t *testing.T) {
	t.Parallel()
	s := resttest.Start(t, 0, nil)
	owner := `{"apiVersion":"apps/v1","kind":"Deployment","name":"web","uid":"u","controller":true,"blockOwnerDeletion":false}`
	create(t, s, "web", `,"ownerReferences":[`+owner+`],"managedFields":[{"manager":"kubectl","operation":"Update"}]`)
	a := s.Do(t, "GET", shopEntries+"/web", "")
	if !strings.Contains(a.Body, `"ownerReferences":[`+owner[:1]) || strings.Contains(a.Body, "managedFields") {
		t.Errorf("%s", a.Body)
	}
	var want metav1.OwnerReference
	if err := json.Unmarshal([]byte(owner), &want); err != nil {
		t.Fatal(err)
	}
	got := parse[metav1.PartialObjectMetadata](t, a.Body)
	if len(got.OwnerReferences) != 1 || !*got.OwnerReferences[0].Controller || *got.OwnerReferences[0].BlockOwnerDeletion || got.OwnerReferences[0].UID != want.UID {
		t.Errorf("%+v", got.OwnerReferences)
	}
	version := got.ResourceVersion
	if a := s.Do(t, "PUT", shopEntries+"/web", a.Body); a.Code != 200 || parse[metav1.PartialObjectMetadata](t, a.Body).ResourceVersion != version {
		t.Errorf("the same again: %d %s", a.Code, a.Body)
	}
	if a := s.Do(t, "PUT", shopEntries+"/web", entry("web", "")); a.Code != 200 || strings.Contains(a.Body, "ownerReferences") {
		t.Errorf("without: %d %s", a.Code, a.Body)
	}
}
