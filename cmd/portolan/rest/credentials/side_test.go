package credentials_test

import (
	"net/http"
	"testing"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest/credentials"
	spec "github.com/portolan-mesh/portolan/storage/access"
)

// TestRightsToSideKinds: viewers read the kinds beside those of the mesh and editors write them, in
// their namespaces; to change a namespace itself takes a role for the whole mesh.
func TestRightsToSideKinds(t *testing.T) {
	t.Parallel()
	a := start(t)
	a.user(t, "alice", credentials.NewRole{Role: "admin"})
	tokens := map[string]string{
		"editor": a.user(t, "ed", credentials.NewRole{Role: "editor", Namespace: "shop"}),
		"viewer": a.user(t, "vi", credentials.NewRole{Role: "viewer", Namespace: "shop"}),
		"reader": a.user(t, "all", credentials.NewRole{Role: "viewer"}),
		"writer": a.user(t, "wr", credentials.NewRole{Role: "editor"}),
		"secret": a.user(t, "se", credentials.NewRole{Role: "secret-reader", Namespace: "shop"}),
		"nobody": a.user(t, "no"),
	}
	is(t, "a role for events alone", a.Local().Do(t, "POST", batches, batchOf(t, "apply",
		role(root, "recorder", spec.Rule{Verbs: []string{"create", "update"}, Kinds: []string{"Event"}, Namespaces: []string{"shop"}}),
		binding(root, "recorder", "recorder", spec.Subject{Kind: spec.SubjectUser, Name: "rec"}))), 200)
	tokens["recorder"] = a.user(t, "rec")
	for _, name := range []string{"shop", "blog"} {
		is(t, name, a.Local().Do(t, "POST", "/api/v1/namespaces", `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"`+name+`"}}`), 201)
	}
	const (
		namespaces = "/api/v1/namespaces"
		maps       = "/api/v1/namespaces/shop/configmaps"
		others     = "/api/v1/namespaces/blog/configmaps"
		leases     = "/apis/coordination.k8s.io/v1/namespaces/shop/leases"
		events     = "/api/v1/namespaces/shop/events"
		newEvents  = "/apis/events.k8s.io/v1/namespaces/shop/events"
		body       = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"generateName":"x-"}}`
		lease      = `{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"generateName":"x-"},"spec":{}}`
		event      = `{"apiVersion":"v1","kind":"Event","metadata":{"generateName":"x-"}}`
		newEvent   = `{"apiVersion":"events.k8s.io/v1","kind":"Event","metadata":{"generateName":"x-"}}`
		label      = `{"metadata":{"labels":{"a":"b"}}}`
	)
	for _, c := range []struct {
		method, path, body string
		may                map[string]int // by who; all others get 403
	}{
		{"GET", namespaces, "", map[string]int{"reader": 200, "writer": 200}},
		{"GET", namespaces + "?watch=true&timeoutSeconds=1", "", map[string]int{"reader": 200, "writer": 200}},
		{"GET", namespaces + "/shop", "", map[string]int{"reader": 200, "writer": 200, "editor": 200, "viewer": 200}},
		{"GET", namespaces + "/blog", "", map[string]int{"reader": 200, "writer": 200}},
		{"POST", namespaces, `{"apiVersion":"v1","kind":"Namespace","metadata":{"generateName":"x-"}}`, map[string]int{"writer": 201}},
		{"PATCH", namespaces + "/shop", label, map[string]int{"writer": 200}},
		{"DELETE", namespaces + "/blog?dryRun=All", "", map[string]int{"writer": 200}},
		{"DELETE", namespaces + "/shop", "", nil}, // it has bindings, which alice alone may delete
		{"GET", maps, "", map[string]int{"reader": 200, "writer": 200, "editor": 200, "viewer": 200}},
		{"GET", others, "", map[string]int{"reader": 200, "writer": 200}},
		{"GET", "/api/v1/configmaps", "", map[string]int{"reader": 200, "writer": 200}},
		{"POST", maps, body, map[string]int{"writer": 201, "editor": 201}},
		{"POST", others, body, map[string]int{"writer": 201}},
		{"POST", leases, lease, map[string]int{"writer": 201, "editor": 201}},
		{"GET", leases, "", map[string]int{"reader": 200, "writer": 200, "editor": 200, "viewer": 200}},
		{"POST", events, event, map[string]int{"writer": 201, "editor": 201, "recorder": 201}},
		{"POST", newEvents, newEvent, map[string]int{"writer": 201, "editor": 201, "recorder": 201}},
		{"GET", newEvents, "", map[string]int{"reader": 200, "writer": 200, "editor": 200, "viewer": 200}},
		{"DELETE", events, "", map[string]int{"writer": 200, "editor": 200}},
	} {
		for who, token := range tokens {
			want := c.may[who]
			if want == 0 {
				want = 403
			}
			answer := a.Do(t, c.method, c.path, c.body, func(r *http.Request) {
				r.Header.Set("Authorization", "Bearer "+token)
				if c.method == "PATCH" {
					r.Header.Set("Content-Type", "application/merge-patch+json")
				}
			})
			is(t, who+" "+c.method+" "+c.path, answer, want)
		}
	}
}
