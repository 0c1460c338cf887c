package xds_test

import (
	"context"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/portolan-mesh/portolan/discovery/identity"
	"github.com/portolan-mesh/portolan/xds"
	"github.com/portolan-mesh/portolan/xds/admission"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/generate/catalogue"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// TestAliasesFollowTheObject: the object of the mesh configuration lets a trust domain in. Without it
// the streams of that domain end.
func TestAliasesFollowTheObject(t *testing.T) {
	t.Parallel()
	const object = "apiVersion: portolan.io/v1\nkind: MeshConfig\nmetadata: {name: default, namespace: istio-system}\nspec: "
	s := xdstest.NewServer(t, catalogue.Types(), func(o *xds.Options) {
		o.Peer = func(context.Context) (admission.Peer, error) {
			who := identity.Identity{TrustDomain: "old.example", Namespace: "shop", ServiceAccount: "web"}
			return admission.Peer{Identity: who, Still: func(context.Context) error { return nil }}, nil
		}
	})
	dial := func() *xdstest.Client {
		c := xdstest.Dial(t, s.Address, xdstest.ClientOptions{Node: node("10.0.0.1"), Variant: protocol.Delta})
		c.Subscribe(xdstest.ClusterType)
		return c
	}
	expectRefused := func(err error) {
		t.Helper()
		if status.Code(err) != codes.PermissionDenied || !strings.Contains(err.Error(), "trustDomainAliases of its MeshConfig") {
			t.Errorf("it ended with %v", err)
		}
	}
	expectRefused(dial().AwaitEnd())
	s.Apply(object + "{trustDomainAliases: [old.example]}")
	xdstest.Eventually(t, "the object is published", func() bool {
		return len(s.XDS.Context().MeshConfig().GetTrustDomainAliases()) == 1
	})
	c := dial()
	c.AwaitAnswer(xdstest.ClusterType, 0)
	s.Apply(object + "{}")
	expectRefused(c.AwaitEnd())
}
