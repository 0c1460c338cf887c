package verdict_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/access"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/xds/verdict"
	"github.com/portolan-mesh/portolan/xds/verdict/index"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// verdictsOf returns the next index, and its verdicts of a code as "namespace/name message". It
// fails the test if an index from nothing has others.
func verdictsOf(t *testing.T, x *index.Index, facts verdict.Facts, code verdict.Code) (*index.Index, []string) {
	t.Helper()
	next := x.Next(facts)
	of := func(x *index.Index) (out []string) {
		for l := range x.Lists() {
			for _, v := range l.Verdicts {
				if v.Code == code {
					out = append(out, l.Of.Namespace+"/"+l.Of.Name+" "+v.Message)
				}
			}
		}
		slices.Sort(out)
		return out
	}
	got := of(next)
	if diff := cmp.Diff(of((*index.Index)(nil).Next(facts)), got); diff != "" {
		t.Errorf("by increments (-from nothing +so)\n%s", diff)
	}
	return next, got
}

// TestUsersWhoNobodyCanBe: a user has a verdict from when the last token expires.
func TestUsersWhoNobodyCanBe(t *testing.T) {
	t.Parallel()
	end := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	user := func(name, spec string) string {
		return fmt.Sprintf("{apiVersion: portolan.io/v1, kind: User, metadata: {name: %s, namespace: istio-system}, spec: {%s}}", name, spec)
	}
	token := func(id string, expires time.Time) string {
		if expires.IsZero() {
			return fmt.Sprintf("{id: %s}", id)
		}
		return fmt.Sprintf("{id: %s, expires: %q}", id, expires.Format(time.RFC3339))
	}
	w := xdstest.NewWorld(t, user("ann", "tokens: ["+token("a", end)+"]"), user("bob", "tokens: ["+token("a", end)+", "+token("b", end.Add(time.Hour))+"]"),
		user("certified", "groups: [ops]"), user("eve", "disabled: true"), user("ci", "tokens: ["+token("a", end.Add(-time.Hour))+", "+token("b", time.Time{})+"]"))
	const tail = ": nobody is let in as this user without a client certificate of that name"
	none := "istio-system/certified has no token" + tail
	var x *index.Index
	for _, step := range []struct {
		at   time.Time
		want []string
	}{
		{time.Unix(0, 0), []string{none}},
		{end.Add(-time.Minute), []string{none}},
		{end, []string{"istio-system/ann has one token, which has ended" + tail, none}},
		{end.Add(time.Hour), []string{"istio-system/ann has one token, which has ended" + tail, "istio-system/bob has 2 tokens, and all have ended" + tail, none}},
		{end.Add(-time.Minute), []string{none}},
	} {
		var got []string
		x, got = verdictsOf(t, x, verdict.Facts{Mesh: w.Context(), Minute: step.at.Unix() / 60}, verdict.UserUnproved)
		if diff := cmp.Diff(step.want, got); diff != "" {
			t.Errorf("%s (-want +got)\n%s", step.at, diff)
		}
	}
}

// TestRolesThatNobodyHas: a Role has a verdict until a binding gives it.
func TestRolesThatNobodyHas(t *testing.T) {
	t.Parallel()
	role := func(namespace string) string {
		return "{apiVersion: portolan.io/v1, kind: Role, metadata: {name: releaser, namespace: " + namespace + "}, spec: {rules: [{verbs: [get], kinds: [gateways]}]}}"
	}
	binding := func(namespace, role string) string {
		return "{apiVersion: portolan.io/v1, kind: RoleBinding, metadata: {name: " + role + ", namespace: " + namespace + "}, spec: {role: " + role + ", subjects: [{kind: User, name: ann}]}}"
	}
	shop, all := "shop/releaser no RoleBinding of namespace shop gives it to anybody", "istio-system/releaser no RoleBinding of any namespace gives it to anybody"
	var x *index.Index
	for _, step := range []struct {
		documents []string
		want      []string
	}{
		{[]string{role("shop")}, []string{shop}},
		{[]string{role("shop"), binding("bank", "releaser")}, []string{shop}},
		{[]string{role("shop"), binding("shop", "viewer")}, []string{shop}},
		{[]string{role("shop"), binding("shop", "releaser")}, nil},
		{[]string{role("shop"), role("istio-system"), binding("shop", "releaser")}, []string{shop}}, // the Role of the root namespace goes before
		{[]string{role("istio-system"), binding("bank", "releaser")}, nil},
		{[]string{role("istio-system")}, []string{all}},
		{[]string{role("shop"), role("istio-system")}, []string{all, shop}},
	} {
		var got []string
		x, got = verdictsOf(t, x, verdict.Facts{Mesh: xdstest.NewWorld(t, step.documents...).Context()}, verdict.RoleUnbound)
		if diff := cmp.Diff(step.want, got); diff != "" {
			t.Errorf("%v (-want +got)\n%s", step.documents, diff)
		}
	}
}

// TestIssuersWithoutKeys: an issuer has a verdict with the cause as long as its keys cannot be
// fetched.
func TestIssuersWithoutKeys(t *testing.T) {
	t.Parallel()
	w := xdstest.NewWorld(t, "{apiVersion: portolan.io/v1, kind: TokenIssuer, metadata: {name: ci, namespace: istio-system}, spec: {issuer: 'https://ci.example', audiences: [a], users: {}}}")
	path := config.Key{Kind: schema.TokenIssuer, Namespace: "istio-system", Name: "ci"}.Path()
	var faults pmap.Map[string]
	var x *index.Index
	for _, step := range []struct {
		fault string
		want  []string
	}{
		{"", nil},
		{"connection refused", []string{"istio-system/ci the leading server cannot fetch its keys: connection refused"}},
		{"no route to host", []string{"istio-system/ci the leading server cannot fetch its keys: no route to host"}},
		{"", nil},
	} {
		if faults = faults.Set(path, step.fault); step.fault == "" {
			faults = faults.Delete(path)
		}
		var got []string
		x, got = verdictsOf(t, x, verdict.Facts{Mesh: w.Context(), KeyFaults: faults}, verdict.IssuerKeys)
		if diff := cmp.Diff(step.want, got); diff != "" {
			t.Errorf("%q (-want +got)\n%s", step.fault, diff)
		}
	}
}

// TestNobodyIsWarnedOfWhatFollows: users write a Role or a User before its binding or token, so
// they are not warned that these are missing.
func TestNobodyIsWarnedOfWhatFollows(t *testing.T) {
	t.Parallel()
	before, after := xdstest.NewWorld(t), xdstest.NewWorld(t,
		"{apiVersion: portolan.io/v1, kind: User, metadata: {name: ann, namespace: istio-system}, spec: {}}",
		"{apiVersion: portolan.io/v1, kind: Role, metadata: {name: releaser, namespace: shop}, spec: {rules: [{verbs: [get], kinds: [gateways]}]}}")
	k := index.NewKeeper(deletions{verdict.Facts{Mesh: before.Context()}, verdict.Facts{Mesh: after.Context()}})
	user := &config.Config{Meta: config.Meta{GroupVersionKind: schema.User, Namespace: "istio-system", Name: "ann"}, Spec: &access.User{}}
	for _, advice := range k.Advise([]storage.Op{{Verb: storage.Create, Config: user}}) {
		if len(advice) > 0 {
			t.Errorf("warned: %+v", advice)
		}
	}
}
