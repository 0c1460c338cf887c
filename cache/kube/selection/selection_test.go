package selection_test

import (
	"slices"
	"strings"
	"testing"

	meshv1alpha1 "istio.io/api/mesh/v1alpha1"

	"github.com/portolan-mesh/portolan/cache/kube/selection"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/pmap"
)

// selectorsOf reads the discoverySelectors of a MeshConfig in YAML.
func selectorsOf(t *testing.T, text string) []*meshv1alpha1.LabelSelector {
	t.Helper()
	m := &meshv1alpha1.MeshConfig{}
	if err := config.DecodeMessage("spec", []byte("{discoverySelectors: "+text+"}"), m); err != nil {
		t.Fatal(err)
	}
	return m.GetDiscoverySelectors()
}

// TestUnreadableSelectors: the last selectors stay while one cannot be read, and it is told which.
func TestUnreadableSelectors(t *testing.T) {
	t.Parallel()
	good, bad := selectorsOf(t, "[{matchLabels: {mesh: 'on'}}]"), selectorsOf(t, "[{}, {matchExpressions: [{key: env, operator: Like}]}]")
	if _, err := selection.Unreadable(good); err != nil {
		t.Error(err)
	}
	if at, err := selection.Unreadable(bad); at != 1 || err == nil {
		t.Errorf("%d: %v", at, err)
	}
	selectors := selection.NewSelectors()
	if err := selectors.Set(good); err != nil {
		t.Fatal(err)
	}
	_, _, next := selectors.Now()
	if err := selectors.Set(bad); err == nil {
		t.Error("no error")
	}
	select {
	case <-next:
		t.Error("selectors that cannot be read are a change")
	default:
	}
	if list, _, _ := selectors.Now(); !list.Matches(map[string]string{"mesh": "on"}) || list.Matches(nil) {
		t.Error("the last selectors do not count")
	}
}

// TestSelectors: a namespace counts if one selector matches, and all do without selectors or with one
// that cannot be read.
func TestSelectors(t *testing.T) {
	t.Parallel()
	namespaces := pmap.Map[*selection.Namespace]{}
	for name, labels := range map[string]map[string]string{
		"istio-system": nil, "pay": {"mesh": "on", "env": "prod"}, "shop": {"mesh": "on"}, "stall": {"env": "test"},
	} {
		namespaces = namespaces.Set(name, &selection.Namespace{Labels: labels})
	}
	for _, c := range []struct {
		selectors, want, fault string
	}{
		{"[]", "istio-system pay shop stall unknown", ""},
		{"[{}]", "istio-system pay shop stall", ""},
		{"[{matchLabels: {mesh: 'on'}}]", "pay shop", ""},
		{"[{matchLabels: {mesh: 'on', env: prod}}]", "pay", ""},
		{"[{matchLabels: {mesh: 'on'}, matchExpressions: [{key: env, operator: DoesNotExist}]}]", "shop", ""},
		{"[{matchLabels: {env: test}}, {matchExpressions: [{key: env, operator: In, values: [prod, other]}]}]", "pay stall", ""},
		{"[{matchExpressions: [{key: env, operator: NotIn, values: [prod]}]}]", "istio-system shop stall", ""},
		{"[{matchExpressions: [{key: env, operator: Exists}]}]", "pay stall", ""},
		{"[{matchLabels: {mesh: none}}]", "", ""},
		{"[{matchLabels: {mesh: 'on'}}, {matchExpressions: [{key: env, operator: Like}]}]", "istio-system pay shop stall unknown", "discoverySelectors[1]"},
	} {
		selectors := selection.NewSelectors()
		if _, known, _ := selectors.Now(); known {
			t.Fatal("they are known before they are set")
		}
		_, _, next := selectors.Now()
		err := selectors.Set(selectorsOf(t, c.selectors))
		if got := err != nil; got != (c.fault != "") || got && !strings.Contains(err.Error(), c.fault) {
			t.Errorf("%s: %v", c.selectors, err)
		}
		<-next
		list, _, next := selectors.Now()
		_ = selectors.Set(selectorsOf(t, c.selectors))
		select {
		case <-next:
			t.Errorf("%s: equal selectors are a change", c.selectors)
		default:
		}
		chosen, has := selection.Of(list, namespaces), []string{}
		for _, name := range []string{"istio-system", "pay", "shop", "stall", "unknown"} {
			if chosen.Has(name) {
				has = append(has, name)
			}
		}
		if got := strings.Join(has, " "); got != c.want {
			t.Errorf("%s: %q counts, want %q", c.selectors, got, c.want)
		}
		if !chosen.Has("") {
			t.Errorf("%s: what has no namespace does not count", c.selectors)
		}
	}
}

// TestMoved: what moves is what is in the namespaces in which two Selections differ.
func TestMoved(t *testing.T) {
	t.Parallel()
	values := pmap.Map[int]{}
	for i, key := range []string{"a/pay/x", "a/shop/x", "a/shopping/x", "b/shop/x", "b/shop/y", "c/node"} {
		values = values.Set(key, i)
	}
	by := selection.Paths{
		Of: func(key string) string {
			if parts := strings.Split(key, "/"); len(parts) == 3 {
				return parts[1]
			}
			return ""
		},
		Prefixes: func(namespace string) []string { return []string{"a/" + namespace + "/", "b/" + namespace + "/"} },
	}
	selectors := selection.NewSelectors()
	if err := selectors.Set(selectorsOf(t, "[{matchLabels: {mesh: none}}]")); err != nil {
		t.Fatal(err)
	}
	list, _, _ := selectors.Now()
	all, none := selection.Selection{}, selection.Of(list, pmap.Map[*selection.Namespace]{})
	shop := none.With("shop", true)
	for _, c := range []struct {
		from, to selection.Selection
		want     []string
	}{
		{all, all, nil},
		{none, shop, []string{"a/shop/x", "b/shop/x", "b/shop/y"}},
		{shop, shop.With("pay", true).With("shop", false), []string{"a/pay/x", "a/shop/x", "b/shop/x", "b/shop/y"}},
		{all, shop, []string{"a/pay/x", "a/shopping/x"}},
		{none, all, []string{"a/pay/x", "a/shop/x", "a/shopping/x", "b/shop/x", "b/shop/y"}},
	} {
		if got := selection.Moved(c.from, c.to, values, by); !slices.Equal(got, c.want) {
			t.Errorf("%v, want %v", got, c.want)
		}
	}
	if !shop.With("shop", false).Equal(none) || shop.Equal(none) || all.Equal(none) || shop != shop.With("shop", true) {
		t.Error("they are not equal as they should be")
	}
}
