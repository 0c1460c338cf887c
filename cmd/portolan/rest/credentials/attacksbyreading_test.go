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
)

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
