package config_test

import (
	"testing"

	"github.com/portolan-mesh/portolan/storage/config"
)

// TestAPathIsReadBack: KeyOfPath is the inverse of Path.
func TestAPathIsReadBack(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]config.Key{
		"networking.istio.io/Gateway/shop/edge": {Kind: config.GroupVersionKind{Group: "networking.istio.io", Kind: "Gateway"}, Namespace: "shop", Name: "edge"},
		"core/Service/shop/web":                 {Kind: config.GroupVersionKind{Kind: "Service"}, Namespace: "shop", Name: "web"},
		"mesh.io/Mesh/_/default":                {Kind: config.GroupVersionKind{Group: "mesh.io", Kind: "Mesh"}, Name: "default"},
	} {
		if got, ok := config.KeyOfPath(path); !ok || got != want || want.Path() != path {
			t.Errorf("%s: %v, %v, whose path is %s", path, got, ok, want.Path())
		}
	}
	for _, path := range []string{"", "a/b/c", "a/b/c/d/e"} {
		if got, ok := config.KeyOfPath(path); ok {
			t.Errorf("%q is the path of %v", path, got)
		}
	}
}
