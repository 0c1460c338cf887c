package credentials_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

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
		{rootRoles, document(t, role(root, "lister", spec.Rule{Verbs: []string{"list"}, Kinds: []string{"serviceentries"}}))},
	} {
		is(t, made.path, a.Local().Do(t, "POST", made.path, made.body), 201)
	}
	eraser := &attacked{api: a, tokens: map[string]string{"eraser": a.user(t, "eraser", credentials.NewRole{Role: "eraser"})}}
	eraser.tokens["sees"] = a.user(t, "sees", credentials.NewRole{Role: "eraser"}, credentials.NewRole{Role: "lister"})
	for _, query := range []string{"?dryRun=All", ""} {
		eraser.try(t, attack{user: "sees", method: "DELETE", path: spaces + "/shop" + query, code: 403, says: "none of the hosts"})
	}
	is(t, "the other user", a.Local().Do(t, "DELETE", rootUsers+"/sees", ""), 200)
	for _, query := range []string{"?dryRun=All", ""} {
		eraser.try(t, attack{user: "eraser", method: "DELETE", path: spaces + "/" + root + query, code: 403, says: "the last user"})
		eraser.try(t, attack{user: "eraser", method: "DELETE", path: spaces + "/shop" + query, code: 403, says: "may not list", hides: "serviceentry"})
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
		// In a batch they take the same rights.
		{user: "viewer", method: "POST", path: batches, media: asJSON, body: `{"apiVersion":"portolan.io/v1","kind":"Batch","operations":[{"verb":"apply","object":` + strings.Replace(config("x"), `"name":"x"`, `"name":"x","namespace":"shop"`, 1) + `}]}`, code: 403},
		{user: "editor", method: "POST", path: batches, media: asJSON, body: `{"apiVersion":"portolan.io/v1","kind":"Batch","operations":[{"verb":"apply","object":` + strings.Replace(config("x"), `"name":"x"`, `"name":"x","namespace":"blog"`, 1) + `}]}`, code: 403},
		{user: "editor", method: "POST", path: batches + "?dryRun=All", media: asJSON, body: `{"apiVersion":"portolan.io/v1","kind":"Batch","operations":[{"verb":"apply","object":` + strings.Replace(config("x"), `"name":"x"`, `"name":"x","namespace":"shop"`, 1) + `}]}`, code: 200},
		{user: "lead", method: "POST", path: batches, media: asJSON, body: `{"apiVersion":"portolan.io/v1","kind":"Batch","operations":[{"verb":"apply","object":` + config("x") + `}]}`, code: 403},
		{user: "lead", method: "POST", path: batches, media: asJSON, body: `{"apiVersion":"portolan.io/v1","kind":"Batch","operations":[{"verb":"delete","apiVersion":"v1","kind":"Namespace","name":"blog"}]}`, code: 422, says: "goes with all that is in it"},
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
