package desired_test

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/keyset"
	"github.com/portolan-mesh/portolan/xds/generate"
	"github.com/portolan-mesh/portolan/xds/generate/catalogue"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/resource"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// counted counts the builds of a generator.
type counted struct {
	generate.Generator
	builds *atomic.Int32
}

func (c counted) Build(v *mesh.View, name string) (proto.Message, []resource.Need, error) {
	c.builds.Add(1)
	return c.Generator.Build(v, name)
}

// keySet is a KeySet of a source, with a key that has an id.
func keySet(url, id string) string {
	return fmt.Sprintf(`{apiVersion: portolan.io/v1, kind: KeySet, metadata: {name: %s, namespace: istio-system}, spec: {url: %q, keys: '{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"%s","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}'}}`,
		keyset.Source{URL: url}.Name(), url, id)
}

// TestAChangedKeyTouchesWhoUsesIt: changed keys of an issuer change one resource of the workloads
// with its tokens, which is built once for those that are alike, and nothing else is built.
func TestAChangedKeyTouchesWhoUsesIt(t *testing.T) {
	t.Parallel()
	builds := &atomic.Int32{}
	types := catalogue.Types()
	for i := range types {
		types[i].Generator = counted{types[i].Generator, builds}
		if types[i].Inbound != nil {
			types[i].Inbound = counted{types[i].Inbound, builds}
		}
	}
	w := xdstest.NewWorld(t, keySet("https://a.example", "1"), keySet("https://b.example", "1"),
		xdstest.Object("Gateway", "shop/edge", "{selector: {app: edge}, servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: [web.test]}]}"),
		xdstest.Object("RequestAuthentication", "shop/a", "{selector: {matchLabels: {tokens: a}}, jwtRules: [{issuer: a, jwksUri: 'https://a.example'}]}"),
		xdstest.Object("RequestAuthentication", "shop/b", "{selector: {matchLabels: {tokens: b}}, jwtRules: [{issuer: b, jwksUri: 'https://b.example'}]}"),
	)
	groups := xdstest.NewGroups(types, w.Context)
	labels := []map[string]string{{"tokens": "a"}, {"tokens": "a", "app": "other"}, {"tokens": "b"}, nil, {"tokens": "a", "app": "edge"}}
	var members []xdstest.Member
	for i, l := range labels {
		node := xdstest.Node{Namespace: "shop", IP: fmt.Sprintf("10.0.0.%d", 1+i), Labels: l, Interception: discovery.InterceptionRedirect}
		if l["app"] == "edge" {
			node.Type, node.Interception = discovery.Router, ""
		}
		members = append(members, groups.Join(node.Proxy(t)))
	}
	defer func() {
		for _, m := range members {
			m.Close()
		}
	}()
	follow := func() []map[string]string {
		var out []map[string]string
		for _, m := range members {
			m.Follow()
			out = append(out, m.Versions())
		}
		return out
	}
	before := follow()
	for _, step := range []struct {
		change  string
		changed []int
		builds  int32
	}{
		{keySet("https://a.example", "2"), []int{0, 1, 4}, 2}, // sidecars are alike, and the gateway is not
		{keySet("https://b.example", "2"), []int{2}, 1},
		{strings.Replace(keySet("https://b.example", "2"), "spec: {", "spec: {error: it is away, ", 1), nil, 0},
		{keySet("https://c.example", "1"), nil, 0},
	} {
		builds.Store(0)
		w.Apply(step.change)
		after := follow()
		for i := range members {
			var names []string
			for name, version := range after[i] {
				if before[i][name] != version {
					names = append(names, name)
				}
			}
			var want []string
			if slices.Contains(step.changed, i) {
				want = []string{"ECDS portolan.tokens.http"}
			}
			if !slices.Equal(names, want) || len(after[i]) != len(before[i]) {
				t.Errorf("%s: proxy %d: %v changed", step.change, i, names)
			}
		}
		if n := builds.Load(); n != step.builds {
			t.Errorf("%s: %d resources were built, want %d", step.change, n, step.builds)
		}
		before = after
	}
}
