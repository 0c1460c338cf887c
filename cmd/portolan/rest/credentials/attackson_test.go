package credentials_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest/credentials"
	spec "github.com/portolan-mesh/portolan/storage/access"
)

// TestAttacksOnCollections: a deletion of many objects needs the right to delete and to list all of
// them, whatever it selects.
func TestAttacksOnCollections(t *testing.T) {
	t.Parallel()
	a := startAttacked(t)
	for _, x := range []attack{
		{user: "", method: "DELETE", path: shopEntries, code: 401},
		{user: "viewer", method: "DELETE", path: shopEntries, code: 403},
		{user: "viewer", method: "DELETE", path: shopEntries + "?dryRun=All", code: 403, hides: "uid"},
		{user: "viewer", method: "DELETE", path: shopEntries, media: asJSON, body: `{"dryRun":["All"]}`, code: 403},
		{user: "editor", method: "DELETE", path: blogEntries + "?labelSelector=a%3Db", code: 403},
		{user: "editor", method: "DELETE", path: blogEntries + "?fieldSelector=metadata.namespace%3Dshop&dryRun=All", code: 403, hides: "hidden"},
		{user: "one", method: "DELETE", path: shopEntries + "?fieldSelector=metadata.name%3Da", code: 403},
		{user: "lead", method: "DELETE", path: "/apis/networking.istio.io/v1/serviceentries", code: 405},
		{user: "lead", method: "DELETE", path: "/apis/networking.istio.io/v1/serviceentries?fieldSelector=metadata.namespace%3Dshop", code: 405},
		{user: "lead", method: "DELETE", path: spaces, code: 405},
		{user: "lead", method: "DELETE", path: rootUsers, code: 403},
		{user: "editor", method: "DELETE", path: ours + "shop/rolebindings?dryRun=All", code: 403},
		{user: "lead", method: "DELETE", path: shopEntries + "?labelSelector=%21%21", code: 400, says: "labelSelector"},
		{user: "lead", method: "DELETE", path: shopEntries + "?fieldSelector=spec.hosts%3Da", code: 400, says: "fieldSelector"},
		{user: "lead", method: "DELETE", path: shopEntries + "?dryRun=Some", code: 422, says: "dryRun"},
		{user: "lead", method: "DELETE", path: shopEntries, media: asJSON, body: `{"preconditions":{"uid":"x"}}`, code: 400, says: "uid"},
		// Who may delete, and not list, is told of no object.
		{user: "eraser", method: "DELETE", path: shopEntries + "/a?dryRun=All", code: 200, hides: "hosts"},
		{user: "eraser", method: "DELETE", path: shopEntries + "?dryRun=All", code: 403, says: "may not list serviceentries", hides: "hosts"},
		{user: "eraser", method: "DELETE", path: shopEntries, code: 403, hides: "hosts"},
		{user: "janitor", method: "DELETE", path: shopEntries + "?dryRun=All", code: 200, says: "hosts"},
		{user: "lead", method: "DELETE", path: shopSecrets + "?dryRun=All", code: 200},
	} {
		a.try(t, x)
	}
	for user, want := range map[string]string{"eraser": `"allowed":false`, "janitor": `"allowed":true`, "lead": `"allowed":true`} {
		a.try(t, attack{user: user, method: "POST", path: credentials.AccessReviewPath + "?dryRun=All", media: asJSON, code: 201, says: want,
			body: `{"spec":{"resourceAttributes":{"verb":"deletecollection","group":"networking.istio.io","resource":"serviceentries","namespace":"shop"}}}`})
	}
}

// TestAttacksOnNamespaces: namespaces are of those with rights in all namespaces; a deletion needs
// the right to delete each object in it, and tells nobody of kinds that they may not list.
func TestAttacksOnNamespaces(t *testing.T) {
	t.Parallel()
	a := startAttacked(t)
	const label = `{"metadata":{"labels":{"a":"b"}}}`
	space := `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"shop","labels":{"a":"b"}}}`
	for _, x := range []attack{
		{user: "", method: "GET", path: spaces, code: 401},
		{user: "", method: "DELETE", path: spaces + "/shop", code: 401},
		{user: "lead", method: "POST", path: spaces, media: asJSON, body: strings.Replace(space, "shop", "mine", 1), code: 403},
		{user: "lead", method: "PUT", path: spaces + "/shop", media: asJSON, body: space, code: 403},
		{user: "lead", method: "PATCH", path: spaces + "/shop", media: asMerge, body: label, code: 403},
		{user: "lead", method: "PATCH", path: spaces + "/shop", media: asStrategic, body: label, code: 403},
		{user: "lead", method: "PATCH", path: spaces + "/shop?fieldManager=x&force=true&dryRun=All", media: asApply, body: space, code: 403},
		{user: "lead", method: "DELETE", path: spaces + "/shop", code: 403},
		{user: "lead", method: "DELETE", path: spaces + "/shop?dryRun=All", code: 403},
		{user: "lead", method: "GET", path: spaces, code: 403},
		{user: "lead", method: "GET", path: spaces + "/blog", code: 403},
		{user: "lead", method: "PUT", path: spaces + "/shop/finalize", media: asJSON, body: space, code: 404},
		{user: "lead", method: "PUT", path: spaces + "/shop/status", media: asJSON, body: space, code: 404},
		// What is in a namespace.
		{user: "janitor", method: "DELETE", path: spaces + "/blog?dryRun=All", code: 403, says: "not deleted", hides: "configmaps"},
		{user: "janitor", method: "DELETE", path: spaces + "/blog", code: 403, says: "not deleted", hides: "configmaps"},
		{user: "janitor", method: "DELETE", path: spaces + "/blog", media: asJSON, body: `{"dryRun":["All"]}`, code: 403, hides: "drafts"},
		{user: "eraser", method: "DELETE", path: spaces + "/shop?dryRun=All", code: 403, says: "not deleted", hides: "secrets"},
		{user: "eraser", method: "DELETE", path: spaces + "/blog?dryRun=All", code: 200, hides: "1 configmaps"},
		{user: "reader", method: "DELETE", path: spaces + "/blog?dryRun=All", code: 403, hides: "drafts"},
	} {
		a.try(t, x)
	}
	emptied := a.try(t, attack{user: "eraser", method: "DELETE", path: spaces + "/blog?dryRun=All", code: 200})
	if told := emptied.Header.Get("Warning"); !strings.Contains(told, "with all that is in it") || strings.Contains(told, "serviceentries") {
		t.Errorf("who may not list is told %q", told)
	}
}

// TestDeletionsOfNamespacesGiveNoRights: the last user, and what only some may delete, do not go with
// a namespace, and the dry run says so, too.
func TestDeletionsOfNamespacesGiveNoRights(t *testing.T) {
	t.Parallel()
	a := start(t)
	for _, made := range []struct{ path, body string }{
		{spaces, `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"` + root + `"}}`},
		{spaces, `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"shop"}}`},
		{shopEntries, document(t, entry("shop", "a"))},
		{shopEntries, document(t, entry("shop", "b"))},
		{rootRoles, document(t, role(root, "eraser", spec.Rule{Verbs: []string{"*"}, Kinds: []string{"namespaces", "users", "rolebindings", "roles"}},
			spec.Rule{Verbs: []string{"delete"}, Kinds: []string{"serviceentries"}, Hosts: []string{"a.shop"}}))},
	} {
		is(t, made.path, a.Local().Do(t, "POST", made.path, made.body), 201)
	}
	eraser := &attacked{api: a, tokens: map[string]string{"eraser": a.user(t, "eraser", credentials.NewRole{Role: "eraser"})}}
	for _, query := range []string{"?dryRun=All", ""} {
		eraser.try(t, attack{user: "eraser", method: "DELETE", path: spaces + "/" + root + query, code: 403, says: "the last user"})
		eraser.try(t, attack{user: "eraser", method: "DELETE", path: spaces + "/shop" + query, code: 403, says: "none of the hosts"})
	}
}

// TestAttacksOnSideKinds: each kind beside those of the mesh has its rights, per namespace.
func TestAttacksOnSideKinds(t *testing.T) {
	t.Parallel()
	a := startAttacked(t)
	leader := leases + "shop/leases/leader"
	lease := func(name, holder string) string {
		return `{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"` + name + `"},"spec":{"holderIdentity":"` + holder + `","leaseDurationSeconds":60}}`
	}
	config := func(name string) string {
		return `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"` + name + `"},"data":{"a":"b"}}`
	}
	event := func(about string) string {
		return `{"apiVersion":"v1","kind":"Event","metadata":{"name":"x"},"involvedObject":{"kind":"ServiceEntry","name":"a","namespace":"` + about + `"},"reason":"R","message":"m"}`
	}
	for _, x := range []attack{
		// A lease is taken by an update.
		{user: "viewer", method: "PUT", path: leader, media: asJSON, body: lease("leader", "thief"), code: 403},
		{user: "viewer", method: "PATCH", path: leader, media: asMerge, body: `{"spec":{"holderIdentity":"thief"}}`, code: 403},
		{user: "starter", method: "PUT", path: leader, media: asJSON, body: lease("leader", "thief"), code: 403},
		{user: "starter", method: "PATCH", path: leader, media: asStrategic, body: `{"spec":{"holderIdentity":"thief"}}`, code: 403},
		{user: "starter", method: "PATCH", path: leader + "?fieldManager=x&force=true", media: asApply, body: lease("leader", "thief"), code: 403},
		{user: "starter", method: "POST", path: leases + "shop/leases", media: asJSON, body: lease("leader", "thief"), code: 409},
		{user: "starter", method: "DELETE", path: leader, code: 403},
		{user: "editor", method: "PUT", path: leases + "blog/leases/leader", media: asJSON, body: lease("leader", "thief"), code: 403},
		{user: "editor", method: "POST", path: leases + "shop/leases", media: asJSON, body: strings.Replace(lease("more", "x"), `"name"`, `"namespace":"blog","name"`, 1), code: 400},
		{user: "editor", method: "PUT", path: leader + "/status", media: asJSON, body: lease("leader", "thief"), code: 404},
		// ConfigMaps.
		{user: "starter", method: "GET", path: spaces + "/shop/configmaps/notes", code: 403},
		{user: "starter", method: "PUT", path: spaces + "/shop/configmaps/notes", media: asJSON, body: config("notes"), code: 403},
		{user: "viewer", method: "GET", path: spaces + "/blog/configmaps/drafts", code: 403, hides: "unpublished"},
		{user: "viewer", method: "GET", path: spaces + "/blog/configmaps", code: 403, hides: "drafts"},
		{user: "viewer", method: "GET", path: "/api/v1/configmaps?fieldSelector=metadata.namespace%3Dshop", code: 403, hides: "notes"},
		{user: "editor", method: "POST", path: spaces + "/shop/configmaps", media: asJSON, body: strings.Replace(config("big"), `"b"`, `"`+strings.Repeat("b", 70<<10)+`"`, 1), code: 422, says: "small ConfigMaps"},
		// Events stay with their objects.
		{user: "viewer", method: "POST", path: spaces + "/shop/events", media: asJSON, body: event("shop"), code: 403},
		{user: "editor", method: "POST", path: spaces + "/blog/events", media: asJSON, body: event("blog"), code: 403},
		{user: "editor", method: "POST", path: spaces + "/shop/events", media: asJSON, body: event("blog"), code: 422, says: "an event is where its object is"},
		{user: "editor", method: "POST", path: spaces + "/shop/events", media: asJSON, body: strings.Replace(event("shop"), `"m"`, `"`+strings.Repeat("m", 2000)+`"`, 1), code: 422, says: "1024"},
		{user: "viewer", method: "GET", path: "/apis/events.k8s.io/v1/namespaces/blog/events", code: 403},
		{user: "viewer", method: "GET", path: "/apis/events.k8s.io/v1/events?watch=true&timeoutSeconds=1", code: 403},
		// They are in no batch.
		{user: "lead", method: "POST", path: batches, media: asJSON, body: `{"apiVersion":"portolan.io/v1","kind":"Batch","operations":[{"verb":"apply","object":` + config("x") + `}]}`, code: 400},
		{user: "lead", method: "POST", path: batches, media: asJSON, body: `{"apiVersion":"portolan.io/v1","kind":"Batch","operations":[{"verb":"delete","apiVersion":"v1","kind":"Namespace","name":"blog"}]}`, code: 400},
	} {
		a.try(t, x)
	}
	full := false
	for i := 0; i < 1100 && !full; i++ {
		answer := a.Do(t, "POST", leases+"shop/leases", lease(fmt.Sprint("l-", i), "x"), func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+a.tokens["starter"]) })
		if full = answer.Code == 403; full {
			is(t, "one lease too many", answer, 403, "as many as this server keeps")
		} else if answer.Code != 201 {
			t.Fatalf("%d %s", answer.Code, answer.Body)
		}
	}
	if !full {
		t.Error("there may be any number of leases")
	}
	a.try(t, attack{user: "lead", method: "PATCH", path: leases + "shop/leases/over?fieldManager=x", media: asApply, body: lease("over", "x"), code: 403, says: "as many as this server keeps"})
}

// TestAttacksByReading: pages, watches, selections and the forms of answers show nothing to whom
// the list does not.
func TestAttacksByReading(t *testing.T) {
	t.Parallel()
	a := startAttacked(t)
	all := "/apis/networking.istio.io/v1/serviceentries"
	page := func(user, path string) string {
		answer := a.try(t, attack{user: user, method: "GET", path: path + "?limit=1", code: 200})
		var list metav1.PartialObjectMetadataList
		if err := json.Unmarshal([]byte(answer.Body), &list); err != nil || list.Continue == "" {
			t.Fatalf("%s has no second page: %v %s", path, err, answer.Body)
		}
		return "?continue=" + url.QueryEscape(list.Continue)
	}
	forge := func(revision int64, after string) string {
		text := fmt.Sprintf(`{"v":"portolan.io/v1","rv":%d,"start":%q}`, revision, after)
		return "?continue=" + base64.RawURLEncoding.EncodeToString([]byte(text))
	}
	ofAll, ofShop := page("reader", all), page("lead", shopEntries)
	prefix := func() string { // of the Paths in tokens
		text, err := base64.RawURLEncoding.DecodeString(strings.TrimPrefix(ofShop, "?continue="))
		if err != nil {
			t.Fatal(err)
		}
		var token struct{ Start string }
		if err := json.Unmarshal(text, &token); err != nil {
			t.Fatal(err)
		}
		return strings.TrimSuffix(token.Start, "shop/a")
	}()
	const table, partial = "application/json;as=Table;v=v1;g=meta.k8s.io", "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
	for _, x := range []struct {
		attack
		accept string
	}{
		{attack: attack{user: "viewer", method: "GET", path: all + ofAll, code: 403}},
		{attack: attack{user: "viewer", method: "GET", path: shopEntries + ofAll, code: 400, hides: "hidden"}},
		{attack: attack{user: "viewer", method: "GET", path: blogEntries + ofShop, code: 403, hides: "hidden"}},
		{attack: attack{user: "nobody", method: "GET", path: shopEntries + ofShop, code: 403}},
		{attack: attack{user: "viewer", method: "GET", path: shopEntries + ofShop, code: 200, says: `"b"`}},
		{attack: attack{user: "reader", method: "GET", path: blogEntries + ofShop, code: 400, says: "another list"}},
		{attack: attack{user: "viewer", method: "GET", path: shopEntries + forge(-1, prefix+"blog/a"), code: 400, says: "another list"}},
		{attack: attack{user: "viewer", method: "GET", path: shopEntries + forge(-1, prefix+"shop/"), code: 200, hides: "hidden"}},
		{attack: attack{user: "viewer", method: "GET", path: shopEntries + forge(-1, prefix+"shop/../blog/"), code: 200, hides: "hidden"}},
		{attack: attack{user: "viewer", method: "GET", path: shopEntries + forge(0, prefix+"shop/a"), code: 400}},
		{attack: attack{user: "viewer", method: "GET", path: shopEntries + forge(-2, prefix+"shop/a"), code: 400}},
		{attack: attack{user: "viewer", method: "GET", path: shopEntries + forge(1<<40, prefix+"shop/a"), code: 400, says: "future"}},
		{attack: attack{user: "viewer", method: "GET", path: shopEntries + "?continue=%00", code: 400}},
		{attack: attack{user: "viewer", method: "GET", path: shopSecrets + forge(-1, prefix+"shop/a"), code: 400}},
		// Selections.
		{attack: attack{user: "viewer", method: "GET", path: all + "?fieldSelector=metadata.namespace%3Dshop", code: 403}},
		{attack: attack{user: "viewer", method: "GET", path: all + "?watch=true&fieldSelector=metadata.namespace%3Dshop", code: 403}},
		{attack: attack{user: "viewer", method: "GET", path: blogEntries + "?watch=true&labelSelector=a%3Db&timeoutSeconds=1", code: 403}},
		{attack: attack{user: "viewer", method: "GET", path: shopEntries + "?watch=true&timeoutSeconds=1&fieldSelector=metadata.namespace%3Dblog", code: 200, hides: "hidden"}},
		{attack: attack{user: "one", method: "GET", path: shopEntries + "?watch=true&fieldSelector=metadata.name%3Db", code: 403}},
		{attack: attack{user: "starter", method: "GET", path: shopEntries + "?watch=true", code: 403}},
		{attack: attack{user: "viewer", method: "GET", path: shopSecrets + "?fieldSelector=data.key%3D" + sealedWord, code: 400}},
		{attack: attack{user: "viewer", method: "GET", path: shopSecrets + "?watch=true&timeoutSeconds=1", code: 200, says: "door"}},
		// The past.
		{attack: attack{user: "viewer", method: "GET", path: blogEntries + "?resourceVersion=5&resourceVersionMatch=Exact", code: 403}},
		{attack: attack{user: "viewer", method: "GET", path: "/apis/portolan.io/v1/records?kind=Secret&namespace=shop&name=door", code: 200, says: "door"}},
		{attack: attack{user: "one", method: "GET", path: "/apis/portolan.io/v1/records?namespace=shop", code: 403}},
		// Forms.
		{attack: attack{user: "viewer", method: "GET", path: all, code: 403}, accept: table},
		{attack: attack{user: "viewer", method: "GET", path: all, code: 403}, accept: partial},
		{attack: attack{user: "viewer", method: "GET", path: blogEntries, code: 403, hides: "hidden"}, accept: table},
		{attack: attack{user: "viewer", method: "GET", path: blogEntries + "/hidden", code: 403, hides: "uid"}, accept: "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"},
		{attack: attack{user: "viewer", method: "GET", path: shopSecrets + "?includeObject=Object", code: 200, says: "door"}, accept: table},
		{attack: attack{user: "viewer", method: "GET", path: shopSecrets, code: 200, says: "door"}, accept: partial},
		{attack: attack{user: "viewer", method: "GET", path: shopSecrets + "/door", code: 200}, accept: "application/yaml"},
		// Paths.
		{attack: attack{user: "viewer", method: "GET", path: networkings + "shop/serviceentries/..%2F..%2Fblog%2Fserviceentries%2Fhidden", code: 404, hides: `"uid"`}},
		{attack: attack{user: "viewer", method: "GET", path: networkings + "shop%2F..%2Fblog/serviceentries/hidden", code: 403}},
		{attack: attack{user: "viewer", method: "GET", path: networkings + "shop/serviceentries/%00", code: 404}},
		{attack: attack{user: "lead", method: "GET", path: shopEntries + "/a/scale", code: 404}},
		{attack: attack{user: "lead", method: "GET", path: shopEntries + "/a/proxy", code: 404}},
		{attack: attack{user: "lead", method: "POST", path: spaces + "/shop/serviceaccounts/x/token", media: asJSON, body: `{}`, code: 404}},
		// Of others.
		{attack: attack{user: "lead", method: "POST", path: "/apis/authorization.k8s.io/v1/subjectaccessreviews", media: asJSON, body: `{"spec":{"user":"alice"}}`, code: 404}},
		{attack: attack{user: "lead", method: "POST", path: "/apis/authorization.k8s.io/v1/namespaces/shop/localsubjectaccessreviews", media: asJSON, body: `{"spec":{"user":"alice"}}`, code: 404}},
		{attack: attack{user: "lead", method: "POST", path: "/apis/authentication.k8s.io/v1/tokenreviews", media: asJSON, body: `{"spec":{"token":"x"}}`, code: 404}},
		{attack: attack{user: "viewer", method: "POST", path: credentials.AccessReviewPath + "?dryRun=All", media: asJSON, body: `{"spec":{"user":"alice","resourceAttributes":{"verb":"get","resource":"users"}}}`, code: 400, says: "user"}},
		{attack: attack{user: "viewer", method: "GET", path: rootUsers + "/alice", code: 403}},
		{attack: attack{user: "viewer", method: "GET", path: "/metrics", code: 403}},
		{attack: attack{user: "viewer", method: "GET", path: "/debug/pprof/heap", code: 403}},
	} {
		a.try(t, x.attack, func(r *http.Request) {
			if x.accept != "" {
				r.Header.Set("Accept", x.accept)
			}
		})
	}
}

// TestAttacksWithoutACredential: whoever proves nothing is told nothing but that.
func TestAttacksWithoutACredential(t *testing.T) {
	t.Parallel()
	a := startAttacked(t)
	for _, path := range []string{
		"/", "/api", "/api/v1", "/apis", "/apis/networking.istio.io", "/apis/networking.istio.io/v1", "/apis/none.example", "/apis/none.example/v1/things",
		"/openapi/v2", "/openapi/v3", "/openapi/v3/apis/networking.istio.io/v1", "/version", "/metrics", "/nothing", "/debug/pprof/",
		shopEntries, shopEntries + "/a", shopEntries + "/a/status", shopEntries + "/a/scale", networkings + "shop/things", spaces, spaces + "/shop", spaces + "/blog/configmaps",
		"/apis/networking.istio.io/v9/serviceentries", "/apis/portolan.io/v1/records", "/apis/portolan.io/v1/findings", credentials.SelfPath, shopEntries + "?watch=true", shopEntries + "?continue=x",
	} {
		for _, user := range []string{"", "guess"} {
			for _, method := range []string{"GET", "DELETE", "PATCH", "POST"} {
				answer := a.try(t, attack{user: user, method: method, path: path, code: 401, hides: "serviceentries"})
				if method == "GET" && answer.Header.Get("Allow") != "" {
					t.Errorf("%s names the methods %s", path, answer.Header.Get("Allow"))
				}
			}
		}
	}
	for _, path := range []string{credentials.AccessReviewPath, "/apis/authentication.k8s.io/v1/selfsubjectreviews", credentials.UsersPath, batches} {
		a.try(t, attack{user: "", method: "POST", path: path, media: asJSON, body: `{}`, code: 401})
	}
	for _, path := range []string{"/healthz", "/readyz"} {
		a.try(t, attack{user: "", method: "GET", path: path, code: 200})
	}
}
