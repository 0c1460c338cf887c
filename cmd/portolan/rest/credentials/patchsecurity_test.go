package credentials_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/batch"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/credentials"
	"github.com/portolan-mesh/portolan/discovery/access"
	spec "github.com/portolan-mesh/portolan/storage/access"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/xds/generate/envoyfilter"
)

const (
	removesRBAC = `{"applyTo":"HTTP_FILTER","match":{"listener":{"filterChain":{"filter":{"name":"envoy.filters.network.http_connection_manager","subFilter":{"name":"envoy.filters.http.rbac"}}}}},"patch":{"operation":"REMOVE"}}`
	setsSocket  = `{"applyTo":"CLUSTER","patch":{"operation":"MERGE","value":{"transport_socket":{"name":"envoy.transport_sockets.raw_buffer"}}}}`
	addsRBAC    = `{"applyTo":"HTTP_FILTER","patch":{"operation":"INSERT_FIRST","value":{"name":"envoy.filters.http.rbac","typed_config":{"@type":"type.googleapis.com/envoy.extensions.filters.http.rbac.v3.RBAC"}}}}`
)

func patches(t *testing.T, namespace, name string, patches ...string) *config.Config {
	t.Helper()
	of := &networking.EnvoyFilter{}
	if err := protojson.Unmarshal([]byte(`{"configPatches":[`+strings.Join(patches, ",")+`]}`), of); err != nil {
		t.Fatal(err)
	}
	return &config.Config{Meta: config.Meta{GroupVersionKind: schema.EnvoyFilter, Namespace: namespace, Name: name}, Spec: of}
}

// TestPatchesThatOpen: whoever writes an EnvoyFilter that opens what policies close needs the verb
// patch-security in its namespace, whatever the request. The refusal names the fields and the verb.
func TestPatchesThatOpen(t *testing.T) {
	t.Parallel()
	a := start(t, func(_ *rest.Options, o *access.Options) { o.Weakens = envoyfilter.Weakens })
	const filters = "/apis/networking.istio.io/v1alpha3/namespaces/shop/envoyfilters"
	opens := patches(t, "shop", "a", removesRBAC, setsSocket)
	is(t, "without users", a.Do(t, "POST", filters, document(t, patches(t, "shop", "first", removesRBAC))), 201)

	a.user(t, "alice", credentials.NewRole{Role: "admin"})
	is(t, "roles", a.Local().Do(t, "POST", batches, batchOf(t, batch.Apply,
		role(root, "opener", spec.Rule{Verbs: []string{spec.PatchSecurity}, Kinds: []string{"ef"}}), binding("shop", "opener", "opener", named("opener")),
		role(root, "patcher", spec.Rule{Verbs: []string{spec.PatchSecurity}, Kinds: []string{"envoyfilters"}}), binding("blog", "opener", "opener", named("elsewhere")))), 200)
	tokens := map[string]string{
		"editor": a.user(t, "editor", credentials.NewRole{Role: "editor", Namespace: "shop"}),
		"admin":  a.user(t, "admin", credentials.NewRole{Role: "admin", Namespace: "shop"}),
		// An editor with the right, one with it in another namespace, and one with that right alone.
		"opener":    a.user(t, "opener", credentials.NewRole{Role: "editor", Namespace: "shop"}),
		"elsewhere": a.user(t, "elsewhere", credentials.NewRole{Role: "editor", Namespace: "shop"}),
		"alone":     a.user(t, "alone", credentials.NewRole{Role: "patcher", Namespace: "shop"}),
	}
	why := func(user string) []string {
		return []string{
			"spec.configPatches[0].match removes the filter envoy.filters.http.rbac", "spec.configPatches[1].patch.value.transport_socket changes how connections are encrypted",
			fmt.Sprintf(`user \"%s\" may not patch-security envoyfilters`, user), "in namespace shop", "given a role with the verb patch-security for envoyfilters",
		}
	}
	for _, user := range []string{"editor", "elsewhere"} {
		for _, query := range []string{"?dryRun=All", ""} {
			what, token := user+query, tokens[user]
			is(t, what+" applies", a.as(t, token, "POST", batches+query, batchOf(t, batch.Apply, opens)), 403, why(user)...)
			is(t, what+" restores", a.as(t, token, "POST", batches+query, batchOf(t, batch.Restore, opens)), 403, why(user)...)
			is(t, what+" creates", a.as(t, token, "POST", filters+query, document(t, opens)), 403, why(user)...)
			is(t, what+" replaces", a.as(t, token, "PUT", filters+"/first"+query, strings.ReplaceAll(document(t, opens), `"a"`, `"first"`)), 403, why(user)...)
		}
		is(t, user+" adds", a.as(t, tokens[user], "POST", batches, batchOf(t, batch.Apply, patches(t, "shop", "adds", addsRBAC))), 200)
	}
	is(t, "all at once", a.as(t, tokens["editor"], "POST", batches, batchOf(t, batch.Apply, opens, entry("shop", "x"), patches(t, "shop", "b", removesRBAC))), 403, "envoyfilter/shop/a: ", "envoyfilter/shop/b: ")
	is(t, "the right alone", a.as(t, tokens["alone"], "POST", batches, batchOf(t, batch.Apply, opens)), 403, "may not create envoyfilters")
	for _, user := range []string{"opener", "admin"} {
		is(t, user, a.as(t, tokens[user], "POST", batches, batchOf(t, batch.Apply, opens)), 200)
	}
	relabelled := patches(t, "shop", "a", removesRBAC, setsSocket)
	relabelled.Labels = map[string]string{"a": "b"}
	is(t, "a relabelled one", a.as(t, tokens["editor"], "POST", batches, batchOf(t, batch.Apply, relabelled)), 403, why("editor")...)
	is(t, "one that opens nothing any more", a.as(t, tokens["editor"], "POST", batches, batchOf(t, batch.Apply, patches(t, "shop", "first", addsRBAC))), 200)
	is(t, "a deletion", a.as(t, tokens["editor"], "DELETE", filters+"/a", ""), 200)
	is(t, "the local user", a.Local().Do(t, "POST", filters, document(t, opens)), 201)

	for user, want := range map[string]string{"editor": `"allowed":false`, "admin": `"allowed":true`, "opener": `"allowed":true`, "elsewhere": `"allowed":false`} {
		is(t, user+" asks", a.as(t, tokens[user], "POST", credentials.AccessReviewPath,
			`{"spec":{"resourceAttributes":{"verb":"patch-security","group":"networking.istio.io","resource":"envoyfilters","namespace":"shop"}}}`), 201, want)
	}
	is(t, "given away", a.as(t, tokens["editor"], "POST", batches, batchOf(t, batch.Apply, binding("shop", "mine", "opener", named("editor")))), 403)
}

// TestAttacksByPatchingPatches: no form of a PATCH brings what opens something into an EnvoyFilter, and
// none leaves it there, for an editor without the verb; one that takes it away is done.
func TestAttacksByPatchingPatches(t *testing.T) {
	t.Parallel()
	a := start(t, func(_ *rest.Options, o *access.Options) { o.Weakens = envoyfilter.Weakens })
	const filters = "/apis/networking.istio.io/v1alpha3/namespaces/shop/envoyfilters/"
	for name, of := range map[string]string{"harmless": addsRBAC, "opens": removesRBAC} {
		is(t, name, a.Local().Do(t, "POST", strings.TrimSuffix(filters, "/"), document(t, patches(t, "shop", name, of))), 201)
	}
	a.user(t, "alice", credentials.NewRole{Role: "admin"})
	tokens := map[string]string{
		"editor": a.user(t, "editor", credentials.NewRole{Role: "editor", Namespace: "shop"}),
		"admin":  a.user(t, "admin", credentials.NewRole{Role: "admin", Namespace: "shop"}),
	}
	const (
		applied = "?fieldManager=x&force=true"
		why     = "may not patch-security envoyfilters"
		label   = `{"metadata":{"labels":{"a":"b"}}}`
	)
	all := func(of string) string { return `{"spec":{"configPatches":[` + of + `]}}` }
	whole := func(name, of string) string { return document(t, patches(t, "shop", name, of)) }
	changing := strings.Replace(removesRBAC, `"REMOVE"`, `"MERGE","value":{"name":"a"}`, 1)
	for _, x := range []struct {
		name, media, body string
		code              int
	}{
		// It is brought in.
		{"harmless", asMerge, all(removesRBAC), 403},
		{"harmless", asMerge, all(addsRBAC + "," + setsSocket), 403},
		{"harmless", asOps, `[{"op":"add","path":"/spec/configPatches/-","value":` + setsSocket + `}]`, 403},
		{"harmless", asOps, `[{"op":"replace","path":"/spec/configPatches/0","value":` + removesRBAC + `}]`, 403},
		{"harmless", asOps, `[{"op":"replace","path":"/spec/configPatches/0/applyTo","value":"CLUSTER"},{"op":"replace","path":"/spec/configPatches/0/patch","value":{"operation":"MERGE","value":{"transport_socket":{"name":"a"}}}}]`, 403},
		{"harmless", asOps, `[{"op":"add","path":"/spec/configPatches/0/match","value":{"listener":{"filterChain":{"filter":{"name":"envoy.filters.network.http_connection_manager","subFilter":{"name":"envoy.filters.http.rbac"}}}}}},{"op":"replace","path":"/spec/configPatches/0/patch/operation","value":"REMOVE"}]`, 403},
		{"harmless" + applied, asApply, whole("harmless", removesRBAC), 403},
		{"new" + applied, asApply, whole("new", setsSocket), 403},
		// It stays, and something else changes.
		{"opens", asMerge, label, 403},
		{"opens", asMerge, `{"spec":{"priority":-9}}`, 403},
		{"opens", asMerge, `{"spec":{"workloadSelector":{"labels":{"app":"bank"}}}}`, 403},
		{"opens", asOps, `[{"op":"add","path":"/metadata/labels","value":{"a":"b"}}]`, 403},
		{"opens", asOps, `[{"op":"replace","path":"/spec/configPatches/0/patch/operation","value":"REPLACE"},{"op":"add","path":"/spec/configPatches/0/patch/value","value":{"name":"a","typed_config":{"@type":"type.googleapis.com/envoy.extensions.filters.http.cors.v3.Cors"}}}]`, 403},
		{"opens", asMerge, all(changing), 403},
		{"opens" + applied, asApply, whole("opens", removesRBAC+","+addsRBAC), 403},
		// It goes.
		{"opens", asOps, `[{"op":"replace","path":"/spec/configPatches/0","value":` + addsRBAC + `}]`, 200},
		{"opens", asMerge, all(addsRBAC), 200},
	} {
		for _, dry := range []string{"&dryRun=All", ""} {
			path := filters + x.name + dry
			if !strings.Contains(x.name, "?") {
				path = strings.Replace(path, "&", "?", 1)
			}
			for user, token := range tokens {
				if user == "admin" && dry == "" {
					continue // it would be done
				}
				code, words := x.code, []string{why}
				if user == "admin" || code == 200 {
					code, words = 200, nil
					if strings.HasPrefix(x.name, "new") {
						code = 201
					}
				}
				answer := a.Do(t, "PATCH", path, x.body, func(r *http.Request) {
					r.Header.Set("Content-Type", x.media)
					r.Header.Set("Authorization", "Bearer "+token)
				})
				is(t, user+" "+x.media+" "+path+" "+x.body, answer, code, words...)
			}
		}
	}
}
