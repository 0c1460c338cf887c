package credentials_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest/credentials"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/resttest"
	spec "github.com/portolan-mesh/portolan/storage/access"
)

// TestPatchesGiveNoRights: a patch, a server-side apply, the deletion of a collection and their dry
// runs need the rights of the writes that they are.
func TestPatchesGiveNoRights(t *testing.T) {
	t.Parallel()
	a := start(t)
	local := a.Local()
	const (
		shop  = "/apis/networking.istio.io/v1/namespaces/shop/serviceentries"
		merge = "application/merge-patch+json"
		apply = "application/apply-patch+yaml"
		ops   = "application/json-patch+json"
		own   = "/apis/portolan.io/v1/namespaces/shop/rolebindings"
	)
	for _, made := range []struct{ path, body string }{
		{shop, document(t, entry("shop", "a"))},
		{"/apis/portolan.io/v1/namespaces/" + root + "/roles", document(t, role(root, "updater", spec.Rule{Verbs: []string{"get", "update"}, Kinds: []string{"serviceentries", "secrets"}}))},
		{"/apis/portolan.io/v1/namespaces/" + root + "/roles", document(t, role(root, "deleter", spec.Rule{Verbs: []string{"delete"}, Kinds: []string{"serviceentries"}, Names: []string{"a"}}))},
		{"/api/v1/namespaces/shop/secrets", `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"door","namespace":"shop"},"stringData":{"key":"word"}}`},
		{own, document(t, binding("shop", "mine", "editor", spec.Subject{Kind: spec.SubjectUser, Name: "ed"}))},
	} {
		if got := local.Do(t, "POST", made.path, made.body); got.Code != 201 {
			t.Fatalf("%s: %d %s", made.path, got.Code, got.Body)
		}
	}
	users := map[string]string{
		"reader":  a.user(t, "rea", credentials.NewRole{Role: "viewer", Namespace: "shop"}),
		"updater": a.user(t, "upd", credentials.NewRole{Role: "updater", Namespace: "shop"}),
		"deleter": a.user(t, "del", credentials.NewRole{Role: "deleter", Namespace: "shop"}),
		"editor":  a.user(t, "ed", credentials.NewRole{Role: "editor", Namespace: "shop"}),
	}
	do := func(user, method, path, media, body string) resttest.Answer {
		return a.Do(t, method, path, body, func(r *http.Request) {
			r.Header.Set("Authorization", "Bearer "+users[user])
			r.Header.Set("Content-Type", media)
		})
	}
	label, blog := `{"metadata":{"labels":{"a":"b"}}}`, strings.Replace(shop, "shop", "blog", 1)
	fresh := document(t, entry("shop", "new"))
	for _, tc := range []struct {
		user, method, path, media, body string
		code                            int
	}{
		{"reader", "PATCH", shop + "/a", merge, label, 403},
		{"reader", "PATCH", shop + "/a?dryRun=All", merge, label, 403},
		{"reader", "PATCH", shop + "/a?fieldManager=x&force=true", apply, document(t, entry("shop", "a")), 403},
		{"reader", "DELETE", shop, merge, "", 403},
		{"reader", "DELETE", shop + "?dryRun=All", merge, "", 403},
		{"updater", "PATCH", shop + "/a?dryRun=All", merge, label, 200},
		{"updater", "PATCH", shop + "/a?fieldManager=x&dryRun=All", apply, document(t, entry("shop", "a")), 200},
		{"updater", "PATCH", shop + "/new?fieldManager=x", apply, fresh, 403}, // it would create it
		{"updater", "PATCH", shop + "/new?fieldManager=x&dryRun=All", apply, fresh, 403},
		{"updater", "PATCH", shop + "/new", merge, label, 404},
		{"updater", "PATCH", blog + "/a", merge, label, 403},
		{"updater", "DELETE", shop, merge, "", 403},
		{"deleter", "DELETE", shop + "/a?dryRun=All", merge, "", 200},
		{"deleter", "DELETE", shop, merge, "", 403}, // the rule names one object
		{"deleter", "DELETE", shop + "?fieldSelector=metadata.name%3Da", merge, "", 403},
		{"editor", "DELETE", shop + "?dryRun=All", merge, "", 200},
		{"editor", "DELETE", blog, merge, "", 403},
		{"editor", "PATCH", shop + "/new?fieldManager=x&dryRun=All", apply, fresh, 201},
		// Nobody gets rights by a patch.
		{"editor", "PATCH", own + "/mine", merge, `{"spec":{"role":"admin"}}`, 403},
		{"editor", "PATCH", own + "/mine?fieldManager=x&force=true", apply, document(t, binding("shop", "mine", "admin", spec.Subject{Kind: spec.SubjectUser, Name: "ed"})), 403},
		{"editor", "DELETE", own, merge, "", 403},
		// A patch can tell what it reads.
		{"updater", "PATCH", "/api/v1/namespaces/shop/secrets/door?dryRun=All", ops, `[{"op":"test","path":"/data/key","value":"d29yZA=="}]`, 403},
		{"updater", "PATCH", "/api/v1/namespaces/shop/secrets/door?dryRun=All", ops, `[{"op":"copy","from":"/data/key","path":"/metadata/labels"}]`, 403},
		{"updater", "PATCH", "/api/v1/namespaces/shop/secrets/door?dryRun=All", ops, `[{"op":"move","from":"/data","path":"/metadata/annotations"}]`, 403},
		{"updater", "PATCH", "/api/v1/namespaces/shop/secrets/door?dryRun=All", ops, `[{"op":"test","path":"","value":{}}]`, 403},
		{"updater", "PATCH", "/api/v1/namespaces/shop/secrets/door?dryRun=All", ops, `[{"op":"add","path":"/data/other","value":"d29yZA=="}]`, 200},
		{"updater", "PATCH", "/api/v1/namespaces/shop/secrets/door?dryRun=All", merge, label, 200},
	} {
		if got := do(tc.user, tc.method, tc.path, tc.media, tc.body); got.Code != tc.code || strings.Contains(got.Body, "d29yZA") {
			t.Errorf("%s: %s %s: %d %s, want %d", tc.user, tc.method, tc.path, got.Code, got.Body, tc.code)
		}
	}
}
