package credentials_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest/credentials"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/resttest"
	spec "github.com/portolan-mesh/portolan/storage/access"
)

// Media types of bodies.
const (
	asJSON      = "application/json"
	asMerge     = "application/merge-patch+json"
	asOps       = "application/json-patch+json"
	asStrategic = "application/strategic-merge-patch+json"
	asApply     = "application/apply-patch+yaml"
)

// Paths of objects that are attacked.
const (
	networkings = "/apis/networking.istio.io/v1/namespaces/"
	shopEntries = networkings + "shop/serviceentries"
	blogEntries = networkings + "blog/serviceentries"
	shopSecrets = "/api/v1/namespaces/shop/secrets"
	ours        = "/apis/portolan.io/v1/namespaces/"
	rootUsers   = ours + root + "/users"
	rootRoles   = ours + root + "/roles"
	rootBinds   = ours + root + "/rolebindings"
	spaces      = "/api/v1/namespaces"
	leases      = "/apis/coordination.k8s.io/v1/namespaces/"
)

// word is the data of the secret shop/door, and sealedWord as documents have it.
const (
	word       = "swordfish"
	sealedWord = "c3dvcmRmaXNo"
)

// attacked is an API with users of several roles, each of which has a token.
type attacked struct {
	*api
	tokens map[string]string
}

func startAttacked(t *testing.T) *attacked {
	t.Helper()
	out := &attacked{api: start(t), tokens: map[string]string{"": ""}}
	for _, made := range []struct{ path, body string }{
		{spaces, `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"shop"}}`},
		{spaces, `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"blog"}}`},
		{shopEntries, document(t, entry("shop", "a"))},
		{shopEntries, document(t, entry("shop", "b"))},
		{blogEntries, document(t, entry("blog", "hidden"))},
		{shopSecrets, `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"door","namespace":"shop"},"stringData":{"key":"` + word + `"}}`},
		{spaces + "/blog/configmaps", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"drafts","namespace":"blog"},"data":{"a":"unpublished"}}`},
		{spaces + "/shop/configmaps", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"notes","namespace":"shop"},"data":{"a":"b"}}`},
		{leases + "shop/leases", `{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"leader","namespace":"shop"},"spec":{"holderIdentity":"one"}}`},
		{rootRoles, document(t, role(root, "updater", spec.Rule{Verbs: []string{"update"}, Kinds: []string{"serviceentries", "secrets", "users", "rolebindings"}}))},
		{rootRoles, document(t, role(root, "starter", spec.Rule{Verbs: []string{"create"}, Kinds: []string{"leases", "configmaps", "serviceentries"}}))},
		{rootRoles, document(t, role(root, "eraser",
			spec.Rule{Verbs: []string{"delete"}, Kinds: []string{"namespaces", "serviceentries", "configmaps"}}))},
		{rootRoles, document(t, role(root, "janitor", spec.Rule{Verbs: []string{"get", "list", "delete"}, Kinds: []string{"namespaces", "serviceentries"}}))},
		{rootRoles, document(t, role(root, "one", spec.Rule{Verbs: []string{"*"}, Kinds: []string{"serviceentries"}, Names: []string{"a"}}))},
	} {
		is(t, made.path, out.Local().Do(t, "POST", made.path, made.body), 201)
	}
	out.user(t, "alice", credentials.NewRole{Role: "admin"})
	for name, role := range map[string]credentials.NewRole{
		"viewer":  {Role: "viewer", Namespace: "shop"},
		"editor":  {Role: "editor", Namespace: "shop"},
		"lead":    {Role: "admin", Namespace: "shop"},
		"updater": {Role: "updater"},
		"starter": {Role: "starter", Namespace: "shop"},
		"eraser":  {Role: "eraser"},
		"janitor": {Role: "janitor"},
		"one":     {Role: "one", Namespace: "shop"},
		"reader":  {Role: "viewer"},
	} {
		out.tokens[name] = out.user(t, name, role)
	}
	out.tokens["nobody"] = out.user(t, "nobody")
	out.tokens["guess"] = "put_" + strings.Repeat("A", 52)
	return out
}

// attack is a request of a user, and what becomes of it.
type attack struct {
	user, method, path, media, body string
	code                            int
	says                            string // what the answer contains
	hides                           string // what it does not contain
}

// try sends an attack, and checks that one that is refused, or is a dry run, changes nothing.
func (a *attacked) try(t *testing.T, x attack, edit ...func(*http.Request)) resttest.Answer {
	t.Helper()
	before := a.versions(t)
	answer := a.Do(t, x.method, x.path, x.body, append(edit, func(r *http.Request) {
		if token := a.tokens[x.user]; token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		if x.media != "" {
			r.Header.Set("Content-Type", x.media)
		}
	})...)
	what := x.user + ": " + x.method + " " + x.path + " " + x.body
	if x.says != "" {
		is(t, what, answer, x.code, x.says)
	} else {
		is(t, what, answer, x.code)
	}
	told := answer.Body + strings.Join(answer.Header.Values("Warning"), "\n")
	for _, hidden := range []string{x.hides, word, sealedWord} {
		if hidden != "" && strings.Contains(told, hidden) {
			t.Errorf("%s tells %q: %s", what, hidden, told)
		}
	}
	if after := a.versions(t); after != before && (x.code >= 300 || x.method == http.MethodGet || strings.Contains(x.path+x.body, "dryRun")) {
		t.Errorf("%s changed something: %s, was %s", what, after, before)
	}
	return answer
}

// versions returns the revisions of the stores.
func (a *attacked) versions(t *testing.T) string {
	t.Helper()
	var out []string
	for _, path := range []string{"/apis/networking.istio.io/v1/serviceentries", "/api/v1/configmaps"} {
		var list metav1.PartialObjectMetadataList
		answer := a.Local().Do(t, "GET", path+"?consistent=true", "")
		if err := json.Unmarshal([]byte(answer.Body), &list); err != nil {
			t.Fatal(err)
		}
		out = append(out, list.ResourceVersion)
	}
	return strings.Join(out, " and ")
}

// TestAttacksByImpersonation: headers with which proxies of Kubernetes say who somebody is change
// nobody's identity, and whoever asks to act as another learns that it is not so.
func TestAttacksByImpersonation(t *testing.T) {
	t.Parallel()
	a := startAttacked(t)
	for header, code := range map[string]int{
		"Impersonate-User": 403, "Impersonate-Group": 403, "Impersonate-Uid": 403, "Impersonate-Extra-Scopes": 403,
		"X-Remote-User": 403, "X-Remote-Group": 403, "X-Forwarded-User": 403,
	} {
		for _, user := range []string{"viewer", "nobody"} {
			answer := a.try(t, attack{user: user, method: "DELETE", path: shopEntries + "/a", code: code}, func(r *http.Request) { r.Header.Set(header, "alice") })
			if impersonates := strings.HasPrefix(header, "Impersonate-"); impersonates != strings.Contains(answer.Body, header) {
				t.Errorf("%s: %s", header, answer.Body)
			}
		}
		a.try(t, attack{user: "", method: "GET", path: shopEntries, code: 401}, func(r *http.Request) { r.Header.Set(header, "alice") })
	}
	a.try(t, attack{user: "lead", method: "GET", path: shopEntries, code: 403, says: "Impersonate-User"}, func(r *http.Request) { r.Header.Set("Impersonate-User", "lead") })
}
