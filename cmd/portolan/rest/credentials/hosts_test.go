package credentials_test

import (
	"strings"
	"testing"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/batch"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/credentials"
	"github.com/portolan-mesh/portolan/discovery/access"
	"github.com/portolan-mesh/portolan/storage"
	spec "github.com/portolan-mesh/portolan/storage/access"
	"github.com/portolan-mesh/portolan/storage/claim"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/host"
	"github.com/portolan-mesh/portolan/storage/schema"
)

func rule(namespace, name, h string) *config.Config {
	return &config.Config{
		Meta: config.Meta{GroupVersionKind: schema.DestinationRule, Namespace: namespace, Name: name},
		Spec: &networking.DestinationRule{Host: h},
	}
}

func hostsOf(verbs []string, hosts ...string) spec.Rule {
	return spec.Rule{Verbs: verbs, Kinds: []string{"destinationrules"}, Hosts: hosts}
}

// TestRightsByHost: a rule with hosts is for objects all of whose hosts it covers, as they are
// and as they become; nobody gives such a rule who does not have the right to its hosts.
func TestRightsByHost(t *testing.T) {
	t.Parallel()
	a := start(t, func(_ *rest.Options, o *access.Options) { o.Domain = "mesh.local" })
	a.user(t, "alice", credentials.NewRole{Role: "admin"})
	lead := a.user(t, "lead", credentials.NewRole{Role: "admin", Namespace: "shop"})
	writing := spec.WritingVerbs()
	is(t, "roles", a.Local().Do(t, "POST", batches, batchOf(t, batch.Apply,
		role(root, "pricer", hostsOf(writing, "*.price.example", "reviews.shop.svc.mesh.local"), spec.Rule{Verbs: []string{"get", "list"}, Kinds: []string{"*"}}),
		binding("shop", "pricer", "pricer", named("pat")), rule("shop", "other", "other.example"), rule("shop", "mine", "old.price.example"))), 200)
	pat := a.user(t, "pat")
	for _, c := range []struct {
		what   string
		object *config.Config
		code   int
		words  []string
	}{
		{"a host", rule("shop", "a", "eu.price.example"), 200, nil},
		{"a pattern", rule("shop", "b", "*.eu.price.example"), 200, nil},
		{"a short name", rule("shop", "c", "reviews"), 200, nil},
		{"capitals", rule("shop", "d", "EU.Price.example"), 200, nil},
		{"another host", rule("shop", "e", "price.example"), 403, []string{
			`destinationrule/shop/e: spec.host: price.example is none of the hosts for which user \"pat\" may create destinationrules \"e\" in namespace shop: *.price.example, reviews.shop.svc.mesh.local`,
		}},
		{"a wider pattern", rule("shop", "f", "*.example"), 403, []string{"*.example is none of the hosts"}},
		{"another's object", rule("shop", "other", "eu.price.example"), 403, []string{"other.example is none of the hosts"}},
		{"one's own for another host", rule("shop", "mine", "other.example"), 403, []string{"other.example is none"}},
		{"another namespace", rule("blog", "a", "eu.price.example"), 403, []string{"may not create"}},
		{"another kind", entry("shop", "x"), 403, []string{"may not create"}},
	} {
		for _, query := range []string{"?dryRun=All", ""} {
			is(t, c.what+query, a.as(t, pat, "POST", batches+query, batchOf(t, batch.Apply, c.object)), c.code, c.words...)
		}
	}
	is(t, "all faults at once", a.as(t, pat, "POST", batches, batchOf(t, batch.Apply, rule("shop", "g", "x.example"), rule("shop", "a", "eu.price.example"), rule("shop", "h", "y.example"))),
		403, "x.example is none", "y.example is none")
	rules := "/apis/networking.istio.io/v1/namespaces/shop/destinationrules"
	is(t, "by itself", a.as(t, pat, "POST", rules, document(t, rule("shop", "i", "x.example"))), 403, "x.example is none")
	is(t, "a delete of another's", a.as(t, pat, "DELETE", rules+"/other", ""), 403, "other.example is none")
	is(t, "a delete", a.as(t, pat, "DELETE", rules+"/mine", ""), 200)

	for what, c := range map[string]struct {
		token   string
		objects []*config.Config
	}{
		"a lead of a namespace": {lead, []*config.Config{role("shop", "r", hostsOf([]string{"update"}, "api.blog.example"))}},
		"a bound role":          {lead, []*config.Config{binding("shop", "more", "pricer", named("lead"))}},
	} {
		is(t, what, a.as(t, c.token, "POST", batches, batchOf(t, batch.Apply, c.objects...)), 403, "may not give away the right to", "for the host")
	}
	is(t, "whoever has the right everywhere", a.as(t, a.user(t, "root", credentials.NewRole{Role: "admin"}), "POST", batches,
		batchOf(t, batch.Apply, role("shop", "r", hostsOf([]string{"update"}, "api.blog.example")))), 200)
}

// TestCrossingsNeedARight: what a batch says for hosts of other namespaces needs the right to
// them; the refusal names all faults, the owner and both mends.
func TestCrossingsNeedARight(t *testing.T) {
	t.Parallel()
	owner := claim.Owner{Host: "api.blog", Namespace: "blog", Object: entry("blog", "api").Key()}
	a := start(t, func(_ *rest.Options, o *access.Options) {
		o.Crossings = func(ops []storage.Op) ([][]claim.Crossing, error) {
			out := make([][]claim.Crossing, len(ops))
			for i, op := range ops {
				for _, c := range claim.Of(op.Config) {
					if owner.Host.SubsetOf(host.Name(c.Host)) && op.Config.Namespace != owner.Namespace {
						out[i] = append(out[i], claim.Crossing{Claim: c, Owner: owner})
					}
				}
			}
			return out, nil
		}
	})
	a.user(t, "alice", credentials.NewRole{Role: "admin"})
	write := []string{"create", "update"}
	is(t, "roles", a.Local().Do(t, "POST", batches, batchOf(t, batch.Apply,
		role(root, "speaker", hostsOf(write, "api.blog")), binding("shop", "speaker", "speaker", named("speaker")),
		role(root, "blogger", spec.Rule{Verbs: write, Kinds: []string{"destinationrules"}}), binding("blog", "blogger", "blogger", named("both")))), 200)
	for user, roles := range map[string][]credentials.NewRole{
		"editor": {{Role: "editor", Namespace: "shop"}}, "speaker": {{Role: "editor", Namespace: "shop"}}, "both": {{Role: "editor", Namespace: "shop"}}, "all": {{Role: "editor"}},
	} {
		token := a.user(t, user, roles...)
		code, words := 200, []string(nil)
		if user == "editor" {
			code, words = 403, []string{
				"destinationrule/shop/a: spec.host: api.blog is a host of namespace blog (serviceentry/blog/api)", "destinationrule/shop/b",
				"have a HostGrant in that namespace name DestinationRule, namespace shop and the host", `have user \"editor\" given a role with a rule for destinationrules there or with the host in its hosts`,
			}
		}
		is(t, user, a.as(t, token, "POST", batches, batchOf(t, batch.Apply, rule("shop", "a", "api.blog"), rule("shop", "c", "c.shop"), rule("shop", "b", "*.blog"))), code, words...)
		if user != "editor" {
			want := map[string]string{"a": "blog/api.blog", "b": "blog/*.blog", "c": ""}
			if user == "speaker" {
				want["b"] = "blog/api.blog" // of the hosts under the pattern the writer has no right to others
			}
			a.rights(t, user, want)
		}
		is(t, user+" elsewhere", a.as(t, token, "POST", batches, batchOf(t, batch.Apply, rule("shop", "d", "other.blog"))), 200)
	}
	is(t, "the owner", a.as(t, a.user(t, "owner", credentials.NewRole{Role: "editor", Namespace: "blog"}), "POST", batches, batchOf(t, batch.Apply, rule("blog", "a", "api.blog"))), 200)

	// What a writer says of rights counts for nothing, also with kubectl's calls.
	forged := rule("shop", "d", "other.blog")
	forged.Annotations = map[string]string{claim.RightsAnnotation: "blog/api.blog", "kept": "x"}
	editor, one := a.user(t, "forger", credentials.NewRole{Role: "editor", Namespace: "shop"}), "/apis/networking.istio.io/v1/namespaces/shop/destinationrules"
	is(t, "forged", a.as(t, editor, "POST", batches, batchOf(t, batch.Apply, forged)), 200)
	a.rights(t, "forged", map[string]string{"d": ""})
	forged.Name = "e"
	is(t, "forged alone", a.as(t, editor, "POST", one, document(t, forged)), 201)
	a.rights(t, "forged alone", map[string]string{"e": ""})
	is(t, "local", a.Local().Do(t, "POST", one, document(t, rule("shop", "f", "api.blog"))), 201)
	a.rights(t, "local", map[string]string{"f": "blog/api.blog"})
}

// TestRightsAreNotWrittenByHand: a server that asks for no consent keeps no rights either.
func TestRightsAreNotWrittenByHand(t *testing.T) {
	t.Parallel()
	a := start(t)
	object := rule("shop", "a", "api.blog")
	object.Annotations = map[string]string{claim.RightsAnnotation: "blog/api.blog"}
	is(t, "before the first user", a.Local().Do(t, "POST", batches, batchOf(t, batch.Apply, object)), 200)
	a.rights(t, "before the first user", map[string]string{"a": ""})
}

// rights compares what stored rules of the namespace shop say of their writers' rights.
func (a *api) rights(t *testing.T, what string, want map[string]string) {
	t.Helper()
	for name, value := range want {
		answer := a.Local().Do(t, "GET", "/apis/networking.istio.io/v1/namespaces/shop/destinationrules/"+name, "")
		is(t, what, answer, 200)
		_, got, _ := strings.Cut(answer.Body, claim.RightsAnnotation+`":"`)
		if got, _, _ = strings.Cut(got, `"`); got != value {
			t.Errorf("%s: %s has the rights %q, want %q", what, name, got, value)
		}
	}
}
