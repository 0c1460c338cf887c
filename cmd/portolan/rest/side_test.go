package rest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/resttest"
	"github.com/portolan-mesh/portolan/discovery/access"
	"github.com/portolan-mesh/portolan/storage"
)

const (
	leases     = "/apis/coordination.k8s.io/v1/namespaces/shop/leases"
	configMaps = "/api/v1/namespaces/shop/configmaps"
	events     = "/api/v1/namespaces/shop/events"
	eventsV1   = "/apis/events.k8s.io/v1/namespaces/shop/events"
	namespaces = "/api/v1/namespaces"
)

const (
	leaseText = `{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"x","namespace":"shop","creationTimestamp":null},
		"spec":{"holderIdentity":"a","leaseDurationSeconds":15,"acquireTime":"2026-01-02T03:04:05.000006Z","renewTime":"2026-01-02T03:04:05.000006Z","leaseTransitions":0}}`
	eventText = `{"apiVersion":"v1","kind":"Event","metadata":{"name":"x","namespace":"shop"},"involvedObject":{"kind":"VirtualService","namespace":"shop","name":"reviews"},
		"reason":"Bad","message":"it is","source":{"component":"me"},"firstTimestamp":"2026-01-02T03:04:05Z","lastTimestamp":"2026-01-02T03:04:05Z","count":1,"type":"Warning",
		"eventTime":null,"reportingComponent":"","reportingInstance":""}`
	eventV1Text = `{"apiVersion":"events.k8s.io/v1","kind":"Event","metadata":{"name":"x","namespace":"shop"},"eventTime":"2026-01-02T03:04:05.000006Z",
		"reportingController":"me","reportingInstance":"me-1","action":"Look","reason":"Bad","regarding":{"kind":"VirtualService","namespace":"shop","name":"reviews"},"note":"it is","type":"Warning"}`
)

func configMap(name, data string) string {
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q,"namespace":"shop"},"data":%s}`, name, data)
}

func namespaceText(name, labels string) string {
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":%q,"labels":%s},"spec":{},"status":{}}`, name, labels)
}

// TestSideKinds: what a create of each kind beside those of the mesh answers.
func TestSideKinds(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		path, body string
		code       int
		says       string
	}{
		"lease":                         {leases, leaseText, 201, `"spec":{"holderIdentity":"a","leaseDurationSeconds":15,"acquireTime":"2026-01-02T03:04:05.000006Z"`},
		"lease of no time":              {leases, strings.Replace(leaseText, ":15", ":0", 1), 422, `spec.leaseDurationSeconds`},
		"lease with an unknown field":   {leases, strings.Replace(leaseText, "leaseTransitions", "leaseTransition", 1), 400, `spec.leaseTransition: unknown field: did you mean leaseTransitions`},
		"ConfigMap":                     {configMaps, configMap("x", `{"a.txt":"b"}`), 201, `"data":{"a.txt":"b"}`},
		"ConfigMap that is too large":   {configMaps, configMap("x", `{"a":"`+strings.Repeat("x", 64<<10)+`"}`), 422, `data: has 65537 bytes`},
		"ConfigMap that names no kind":  {configMaps, `{"metadata":{"name":"x"},"data":{"a":"b"}}`, 201, `{"apiVersion":"v1","kind":"ConfigMap"`},
		"secret that names no version":  {"/api/v1/namespaces/shop/secrets", `{"kind":"Secret","metadata":{"name":"x"},"data":{"a":"Yg=="}}`, 201, `{"apiVersion":"v1","kind":"Secret"`},
		"object of the mesh, no kind":   {shop + "/serviceentries", `{"metadata":{"name":"x"},"spec":{}}`, 400, `it has neither apiVersion nor kind`},
		"ConfigMap with a bad key":      {configMaps, configMap("x", `{"a/b":"c"}`), 422, `data[a/b]`},
		"ConfigMap with a number":       {configMaps, configMap("x", `{"a":1}`), 400, `data[a]: must be a string`},
		"event":                         {events, eventText, 201, `"involvedObject":{"kind":"VirtualService","namespace":"shop","name":"reviews"},"reason":"Bad","message":"it is"`},
		"event of another namespace":    {events, strings.Replace(eventText, `"namespace":"shop","name":"reviews"`, `"namespace":"blog","name":"reviews"`, 1), 422, `involvedObject.namespace`},
		"event of events.k8s.io":        {eventsV1, eventV1Text, 201, `"apiVersion":"events.k8s.io/v1"`},
		"event of events.k8s.io, noted": {eventsV1, eventV1Text, 201, `"regarding":{"kind":"VirtualService","namespace":"shop","name":"reviews"},"note":"it is"`},
		"event of the other group":      {eventsV1, strings.Replace(eventV1Text, `"note"`, `"message"`, 1), 400, `message: unknown field`},
		"namespace":                     {namespaces, namespaceText("x", `{"a":"b"}`), 201, `"labels":{"a":"b"}`},
		"namespace with a dotted name":  {namespaces, namespaceText("x.y", `{}`), 422, `metadata.name`},
		"events in version v1beta1":     {"/apis/events.k8s.io/v1beta1/namespaces/shop/events", eventV1Text, 404, `no resource \"events\" in group \"events.k8s.io\"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := resttest.Start(t, 0, nil)
			if a := s.Do(t, "POST", tc.path, tc.body); a.Code != tc.code || !strings.Contains(a.Body, tc.says) {
				t.Errorf("%d %s, want %d and %q", a.Code, a.Body, tc.code, tc.says)
			}
			if a := s.Do(t, "GET", tc.path+"/x", ""); (a.Code == 200) != (tc.code == 201) {
				t.Errorf("then it is %d %s", a.Code, a.Body)
			}
		})
	}
}

// TestSideKindsAreAppliedServerSide: what is served of each kind beside those of the mesh fits its
// definition, so that it can be applied over.
func TestSideKindsAreAppliedServerSide(t *testing.T) {
	t.Parallel()
	for list, body := range map[string]string{
		namespaces: namespaceText("x", "{}"), leases: leaseText, configMaps: configMap("x", `{"a":"b"}`), events: eventText, eventsV1: eventV1Text,
	} {
		s := resttest.Start(t, 0, nil)
		if a := s.Do(t, "POST", list, body); a.Code != 201 {
			t.Fatalf("%s: %d %s", list, a.Code, a.Body)
		}
		var of metav1.TypeMeta
		if err := json.Unmarshal([]byte(body), &of); err != nil {
			t.Fatal(err)
		}
		applied := fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{"name":"x","labels":{"c":"d"}}}`, of.APIVersion, of.Kind)
		for range 2 {
			if a := s.Do(t, "PATCH", list+"/x?fieldManager=me", applied, as(applyPatch)); a.Code != 200 || !strings.Contains(a.Body, `"labels":{"c":"d"}`) {
				t.Errorf("%s: %d %s", list, a.Code, a.Body)
			}
		}
	}
}

// TestAnEventIsOneObjectInTwoGroups: however it is written, both groups have it, each with its own
// names, and so have patches and watches.
func TestAnEventIsOneObjectInTwoGroups(t *testing.T) {
	t.Parallel()
	s := resttest.Start(t, 0, nil)
	made := parse[object](t, s.Do(t, "POST", eventsV1, eventV1Text).Body)
	core := s.Do(t, "GET", events+"/x", "")
	for _, want := range []string{`"apiVersion":"v1"`, `"involvedObject":{"kind":"VirtualService"`, `"message":"it is"`, `"reportingComponent":"me"`, string(made.Metadata.UID)} {
		if !strings.Contains(core.Body, want) {
			t.Errorf("core/v1 has no %s: %s", want, core.Body)
		}
	}
	w := follow(t, s, eventsV1+"?watch=true&resourceVersion="+made.Metadata.ResourceVersion)
	w.expect("ADDED x@" + made.Metadata.ResourceVersion)
	patched := s.Do(t, "PATCH", events+"/x", `{"count":2,"message":"again"}`, as(strategicPatch))
	if patched.Code != 200 {
		t.Fatalf("%d %s", patched.Code, patched.Body)
	}
	if text, _ := w.next(); !strings.HasPrefix(text, "MODIFIED x@") {
		t.Error(text)
	}
	if got := s.Do(t, "GET", eventsV1+"/x", ""); !strings.Contains(got.Body, `"note":"again"`) || !strings.Contains(got.Body, `"deprecatedCount":2`) {
		t.Errorf("%s", got.Body)
	}
	patched = s.Do(t, "PATCH", eventsV1+"/x", `{"series":{"count":3,"lastObservedTime":"2026-01-02T03:04:06.000000Z"},"regarding":{"uid":"u"}}`, as(strategicPatch))
	if patched.Code != 200 || !strings.Contains(patched.Body, `"uid":"u"`) || !strings.Contains(patched.Body, `"count":3`) {
		t.Errorf("%d %s", patched.Code, patched.Body)
	}
	applied := s.Do(t, "PATCH", eventsV1+"/x?fieldManager=me&force=true", strings.Replace(eventV1Text, "it is", "so be it", 1), as(applyPatch))
	if applied.Code != 200 || !strings.Contains(applied.Body, `"note":"so be it"`) {
		t.Errorf("%d %s", applied.Code, applied.Body)
	}
	if list := s.Do(t, "GET", "/apis/events.k8s.io/v1/events", ""); !strings.Contains(list.Body, `"kind":"EventList","apiVersion":"events.k8s.io/v1"`) || !strings.Contains(list.Body, `"note":"so be it"`) {
		t.Errorf("%d %s", list.Code, list.Body)
	}
}

// TestLeasesAreRenewedByVersion: of two that take a lease at once, one gets it.
func TestLeasesAreRenewedByVersion(t *testing.T) {
	t.Parallel()
	s := resttest.Start(t, 0, nil)
	made := s.Do(t, "POST", leases, leaseText)
	mine, theirs := strings.Replace(made.Body, `"a"`, `"b"`, 1), strings.Replace(made.Body, `"a"`, `"c"`, 1)
	if a := s.Do(t, "PUT", leases+"/x", mine); a.Code != 200 || !strings.Contains(a.Body, `"holderIdentity":"b"`) {
		t.Errorf("%d %s", a.Code, a.Body)
	}
	if a := s.Do(t, "PUT", leases+"/x", theirs); a.Code != 409 {
		t.Errorf("the second: %d %s", a.Code, a.Body)
	}
}

// TestSideKindsAreBounded: a kind has as many objects as there may be, and not one more.
func TestSideKindsAreBounded(t *testing.T) {
	t.Parallel()
	s := resttest.Start(t, 0, nil)
	for i := range 1000 {
		if a := s.Do(t, "POST", configMaps, configMap(fmt.Sprint("m", i), `{}`)); a.Code != 201 {
			t.Fatalf("%d: %d %s", i, a.Code, a.Body)
		}
	}
	a := s.Do(t, "POST", configMaps, configMap("more", `{}`))
	if a.Code != 403 || !strings.Contains(a.Body, "there are 1000 configmaps, as many as this server keeps") {
		t.Errorf("%d %s", a.Code, a.Body)
	}
	if a := s.Do(t, "PATCH", configMaps+"/more?fieldManager=me", configMap("more", `{}`), as(applyPatch)); a.Code != 403 {
		t.Errorf("by an apply: %d %s", a.Code, a.Body)
	}
	if a := s.Do(t, "POST", batches, batchOf(write("apply", configMap("m7", `{}`)), write("apply", configMap("more", `{}`)))); a.Code != 403 {
		t.Errorf("in a batch: %d %s", a.Code, a.Body)
	}
	if a := s.Do(t, "PUT", configMaps+"/m7", configMap("m7", `{"a":"b"}`)); a.Code != 200 {
		t.Errorf("a change: %d %s", a.Code, a.Body)
	}
	s.Do(t, "DELETE", configMaps+"/m7", "")
	if a := s.Do(t, "POST", configMaps, configMap("more", `{}`)); a.Code != 201 {
		t.Errorf("after a deletion: %d %s", a.Code, a.Body)
	}
}

// TestSideKindsAreNotOfTheMesh: neither the store of the mesh nor its history has them, and they
// are in no category of the mesh.
func TestSideKindsAreNotOfTheMesh(t *testing.T) {
	t.Parallel()
	s := resttest.Start(t, 0, nil)
	before := s.Store.Version()
	for path, body := range map[string]string{leases: leaseText, configMaps: configMap("x", `{}`), events: eventText, namespaces: namespaceText("shop", `{}`)} {
		if a := s.Do(t, "POST", path, body); a.Code != 201 {
			t.Errorf("%s: %d %s", path, a.Code, a.Body)
		}
	}
	if now := s.Store.Version(); now != before {
		t.Errorf("the store of the mesh went from %s to %s", before, now)
	}
	for _, path := range []string{"/api/v1", "/apis/coordination.k8s.io/v1", "/apis/events.k8s.io/v1"} {
		for _, r := range parse[metav1.APIResourceList](t, s.Do(t, "GET", path, "").Body).APIResources {
			if r.Name != "secrets" && len(r.Categories) > 0 || r.Namespaced == (r.Name == "namespaces") {
				t.Errorf("%s: %+v", path, r)
			}
		}
	}
}

func TestNamespaces(t *testing.T) {
	t.Parallel()
	s := resttest.Start(t, 0, func(o *rest.Options) { o.LastingNamespaces = []string{"istio-system"} })
	made := s.Do(t, "POST", namespaces, namespaceText("shop", `{"team":"a"}`))
	if made.Code != 201 {
		t.Fatalf("%d %s", made.Code, made.Body)
	}
	w := follow(t, s, namespaces+"?watch=true&resourceVersion="+parse[object](t, made.Body).Metadata.ResourceVersion)
	for _, step := range []struct {
		method, path, body, media string
		code                      int
		says                      string
	}{
		{"GET", namespaces + "/shop", "", "", 200, `"status":{"phase":"Active"}`},
		{"GET", namespaces + "/blog", "", "", 404, `namespaces \"blog\" not found`},
		{"POST", namespaces, namespaceText("shop", `{}`), "", 409, "AlreadyExists"},
		{"PATCH", namespaces + "/shop", `{"metadata":{"labels":{"team":"b"}}}`, mergePatch, 200, `"team":"b"`},
		{"PATCH", namespaces + "/shop", `{"metadata":{"annotations":{"n":"1"}}}`, strategicPatch, 200, `"n":"1"`},
		{"PATCH", namespaces + "/blog?fieldManager=me", namespaceText("blog", `{"team":"b"}`), applyPatch, 201, `"name":"blog"`},
		{"GET", namespaces + "?labelSelector=team%3Db", "", "", 200, `"name":"shop"`},
		{"DELETE", namespaces, "", "", 405, "not allowed"},
		{"DELETE", namespaces + "/blog", "", "", 200, `"Success"`},
		{"DELETE", namespaces + "/blog", "", "", 404, "not found"},
		{"POST", namespaces, namespaceText("istio-system", `{}`), "", 201, ""},
		{"DELETE", namespaces + "/istio-system", "", "", 403, "the mesh has its own objects there"},
	} {
		a := s.Do(t, step.method, step.path, step.body, func(r *http.Request) {
			if step.media != "" {
				r.Header.Set("Content-Type", step.media)
			}
		})
		if a.Code != step.code || !strings.Contains(a.Body, step.says) {
			t.Errorf("%s %s: %d %s, want %d and %q", step.method, step.path, a.Code, a.Body, step.code, step.says)
		}
	}
	var seen []string
	for range 6 {
		text, _ := w.next()
		verb, _, _ := strings.Cut(text, "@")
		seen = append(seen, verb)
	}
	if want := []string{"ADDED shop", "MODIFIED shop", "MODIFIED shop", "ADDED blog", "DELETED blog", "ADDED istio-system"}; !slices.Equal(seen, want) {
		t.Errorf("watched %q, want %q", seen, want)
	}
}

// TestANamespaceIsDeletedWithItsContents: all that is in it goes, and nothing else.
func TestANamespaceIsDeletedWithItsContents(t *testing.T) {
	t.Parallel()
	s := resttest.Start(t, 0, nil)
	fill(t, s)
	elsewhere := strings.Replace(shopEntries, "/shop/", "/blog/", 1)
	s.Do(t, "POST", elsewhere, strings.Replace(entry("a", ""), `"shop"`, `"blog"`, 1))
	for _, tc := range []struct {
		path, options string
		code          int
	}{
		{namespaces + "/shop?dryRun=All", "", 200},
		{namespaces + "/shop", `{"kind":"DeleteOptions","apiVersion":"v1","dryRun":["All"],"propagationPolicy":"Background"}`, 200},
		{namespaces + "/shop", `{"dryRun":["Some"]}`, 422},
		{namespaces + "/shop", `{"preconditions":{"uid":"other"}}`, 409},
		{namespaces + "/shop", `{"preconditions":{"resourceVersion":"1"}}`, 409},
		{namespaces + "/blog", "", 404},
	} {
		if a := s.Do(t, "DELETE", tc.path, tc.options); a.Code != tc.code {
			t.Errorf("%s %s: %d %s", tc.path, tc.options, a.Code, a.Body)
		}
		for _, path := range []string{shopEntries + "/a", elsewhere + "/a", configMaps + "/x", leases + "/x", namespaces + "/shop"} {
			if a := s.Do(t, "GET", path, ""); a.Code != 200 {
				t.Errorf("after %s %s, %s: %d", tc.path, tc.options, path, a.Code)
			}
		}
	}
	if a := s.Do(t, "DELETE", namespaces+"/shop", ""); a.Code != 200 {
		t.Fatalf("%d %s", a.Code, a.Body)
	}
	for _, path := range []string{shopEntries + "/a", configMaps + "/x", leases + "/x", namespaces + "/shop"} {
		if a := s.Do(t, "GET", path, ""); a.Code != 404 {
			t.Errorf("%s: %d", path, a.Code)
		}
	}
	if a := s.Do(t, "GET", elsewhere+"/a", ""); a.Code != 200 {
		t.Errorf("of another namespace: %d", a.Code)
	}
	if a := s.Do(t, "GET", "/apis/portolan.io/v1/records?namespace=shop", ""); !strings.Contains(a.Body, `"outcome":"deleted"`) {
		t.Errorf("the history: %s", a.Body)
	}
}

// narrow is a store that takes few operations at once, as an etcd does that others run.
type narrow struct{ rest.Store }

func (n narrow) Apply(ctx context.Context, ops []storage.Op) (string, []storage.Result, error) {
	if len(ops) > 3 {
		return "", nil, fmt.Errorf("%w: %d operations", storage.ErrTooLarge, len(ops))
	}
	return n.Store.Apply(ctx, ops)
}

// TestANamespaceIsDeletedInPieces: as many objects at once as the store takes.
func TestANamespaceIsDeletedInPieces(t *testing.T) {
	t.Parallel()
	s := resttest.Start(t, 0, func(o *rest.Options) { o.Store = narrow{o.Store} })
	fill(t, s)
	for i := range 20 {
		create(t, s, fmt.Sprint("e", i), "")
	}
	if a := s.Do(t, "DELETE", namespaces+"/shop", ""); a.Code != 200 {
		t.Fatalf("%d %s", a.Code, a.Body)
	}
	if _, content := s.Store.Snapshot(); content.Configs.Len() != 0 {
		t.Errorf("%d objects are left", content.Configs.Len())
	}
}

// fill makes a namespace with objects of the mesh and of others.
func fill(t *testing.T, s *resttest.Server) {
	t.Helper()
	for _, one := range [][2]string{{namespaces, namespaceText("shop", `{}`)}, {shopEntries, entry("a", "")}, {shopEntries, entry("b", "")}, {configMaps, configMap("x", `{}`)}, {leases, leaseText}} {
		if a := s.Do(t, "POST", one[0], one[1]); a.Code != 201 {
			t.Fatalf("%s: %d %s", one[0], a.Code, a.Body)
		}
	}
}

// keepsEntries is an Authorizer that lets nobody delete ServiceEntries.
type keepsEntries struct{}

func (keepsEntries) Authorize(_ context.Context, _ access.Identity, r access.Request) error {
	if r.Verb == "delete" && r.Resource == "serviceentries" {
		return fmt.Errorf("nobody may %s %s in %s", r.Verb, r.Resource, r.Namespace)
	}
	return nil
}

// TestWhoMayNotDeleteTheContentsMayNotDeleteTheNamespace: and then nothing is deleted.
func TestWhoMayNotDeleteTheContentsMayNotDeleteTheNamespace(t *testing.T) {
	t.Parallel()
	s := resttest.Start(t, 0, func(o *rest.Options) { o.Authorizer = keepsEntries{} })
	fill(t, s)
	a := s.Do(t, "DELETE", namespaces+"/shop", "")
	if a.Code != 403 || !strings.Contains(a.Body, "namespace shop is not deleted: it has serviceentries, and nobody may delete serviceentries in shop") {
		t.Errorf("%d %s", a.Code, a.Body)
	}
	for _, path := range []string{shopEntries + "/a", configMaps + "/x", leases + "/x", namespaces + "/shop"} {
		if a := s.Do(t, "GET", path, ""); a.Code != 200 {
			t.Errorf("%s: %d", path, a.Code)
		}
	}
}

// TestObjectsComeAsMessages: clients of Kubernetes send its own kinds as protobuf.
func TestObjectsComeAsMessages(t *testing.T) {
	t.Parallel()
	holder := "a"
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "x"}, Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder}}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "x"}, Data: map[string][]byte{"a": []byte("b")}}
	wrapped := func(apiVersion, kind string, of interface{ Marshal() ([]byte, error) }) string {
		raw, err := of.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		text, err := (&runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: apiVersion, Kind: kind}, Raw: raw}).Marshal()
		if err != nil {
			t.Fatal(err)
		}
		return "k8s\x00" + string(text)
	}
	for name, tc := range map[string]struct {
		path, body string
		code       int
		says       string
	}{
		"lease":                {leases, wrapped("coordination.k8s.io/v1", "Lease", lease), 201, `"holderIdentity":"a"`},
		"secret":               {shopSecrets, wrapped("v1", "Secret", secret), 201, `"entries":[{"name":"a","bytes":1}]`},
		"event":                {eventsV1, wrapped("events.k8s.io/v1", "Event", &eventsv1.Event{ObjectMeta: metav1.ObjectMeta{Name: "x"}, Note: "n"}), 201, `"note":"n"`},
		"another kind":         {leases, wrapped("v1", "ConfigMap", &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "x"}}), 400, "the path takes Lease"},
		"a kind without types": {shopEntries, wrapped("networking.istio.io/v1", "ServiceEntry", lease), 415, "application/json"},
		"no message":           {leases, leaseText, 400, "does not appear to be a protobuf message"},
		"a broken message":     {leases, "k8s\x00\xff\xff", 400, "cannot be read"},
		"a broken object":      {leases, wrapped("coordination.k8s.io/v1", "Lease", broken{}), 400, "cannot be read"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := resttest.Start(t, 0, nil)
			if a := s.Do(t, "POST", tc.path, tc.body, as("application/vnd.kubernetes.protobuf")); a.Code != tc.code || !strings.Contains(a.Body, tc.says) {
				t.Fatalf("%d %s, want %d and %q", a.Code, a.Body, tc.code, tc.says)
			}
			if tc.code != 201 {
				return
			}
			uid := types.UID("other")
			options := wrapped("v1", "DeleteOptions", &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
			if a := s.Do(t, "DELETE", tc.path+"/x", options, as("application/vnd.kubernetes.protobuf")); a.Code != 409 {
				t.Errorf("under a condition: %d %s", a.Code, a.Body)
			}
		})
	}
}

// broken is no message.
type broken struct{}

func (broken) Marshal() ([]byte, error) { return []byte("\xff\xff\xff"), nil }
