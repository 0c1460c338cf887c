package mesh_test

import (
	"slices"
	"testing"

	"github.com/portolan-mesh/portolan/xds/mesh/origins"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// TestOwnPeersHaveOrigins: what a workload builds from its mode names the PeerAuthentications that
// count for it, and no others.
func TestOwnPeersHaveOrigins(t *testing.T) {
	t.Parallel()
	w := xdstest.NewWorld(t,
		xdstest.Object("PeerAuthentication", "istio-system/mesh", "{mtls: {mode: PERMISSIVE}}"),
		xdstest.Object("PeerAuthentication", "shop/wide", "{mtls: {mode: STRICT}}"),
		xdstest.Object("PeerAuthentication", "shop/web", "{selector: {matchLabels: {app: web}}, mtls: {mode: DISABLE}}"),
		xdstest.Object("PeerAuthentication", "shop/db", "{selector: {matchLabels: {app: db}}, mtls: {mode: DISABLE}}"),
		xdstest.Object("PeerAuthentication", "other/wide", "{mtls: {mode: STRICT}}"),
	)
	v := w.View(xdstest.Node{Namespace: "shop", Labels: map[string]string{"app": "web"}}).Recording()
	v.OwnPeers()
	var got []string
	for _, key := range origins.Of(v.Dependencies()) {
		got = append(got, key.Namespace+"/"+key.Name)
	}
	if want := []string{"istio-system/mesh", "shop/web", "shop/wide"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
