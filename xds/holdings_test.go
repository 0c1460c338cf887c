package xds_test

import (
	"bytes"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/xds"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/generate/catalogue"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// holdings returns the Holdings of the only proxy.
func holdings(t *testing.T, s *xdstest.Server, types func(string) bool) *xds.Holdings {
	t.Helper()
	h, err := s.XDS.Holdings(t.Context(), s.XDS.Nodes()[0].ID, types)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// TestHoldingsAreWhatTheClientHolds compares them with a client, byte by byte, after each
// of several changes.
func TestHoldingsAreWhatTheClientHolds(t *testing.T) {
	t.Parallel()
	variants(t, func(t *testing.T, v protocol.Variant) {
		s := xdstest.NewServer(t, catalogue.Types())
		c := dial(t, s, v, nil)
		for what, documents := range [][]string{
			{service("reviews", 9080, "10.1.0.1"), service("ratings", 9080, "10.1.0.9")},
			{route("reviews", "ratings"), subsets},
			{service("reviews", 9080, "10.1.0.1", "10.1.0.2")},
			{service("details", 9081, "10.1.0.3")},
		} {
			revision := s.Apply(documents...)
			settled(t, s, revision)
			h := holdings(t, s, nil)
			if h.Revision < revision || h.Variant != v {
				t.Errorf("change %d: revision %d, %s; want %d, %s", what, h.Revision, h.Variant, revision, v)
			}
			for _, typ := range h.Types {
				held, got := c.Held(typ.TypeURL), map[string][]byte{}
				for _, one := range typ.Resources {
					if !one.InSync() {
						t.Errorf("change %d: %s %s is not in sync: %+v", what, typ.Name, one.Name, one.Holding)
						continue
					}
					got[one.Name] = one.Acked.Body.GetValue()
				}
				if typ.Requested != (len(held) > 0) || !slices.Equal(slices.Sorted(maps.Keys(held)), slices.Sorted(maps.Keys(got))) {
					t.Errorf("change %d: %s: got %v (requested %v), the client has %v", what, typ.Name, slices.Sorted(maps.Keys(got)), typ.Requested, slices.Sorted(maps.Keys(held)))
				}
				for name, body := range got {
					if !bytes.Equal(body, held[name].Body.GetValue()) {
						t.Errorf("change %d: %s %s differs from what the client has", what, typ.Name, name)
					}
				}
			}
		}
	})
}

// TestHoldingsNameTheObjects behind clusters, listeners and endpoints, and behind the
// virtual hosts of route configurations.
func TestHoldingsNameTheObjects(t *testing.T) {
	t.Parallel()
	s := xdstest.NewServer(t, catalogue.Types())
	dial(t, s, protocol.StateOfTheWorld, nil)
	settled(t, s, s.Apply(service("reviews", 9080, "10.1.0.1"), service("ratings", 9080, "10.1.0.2"), subsets, route("reviews", "ratings")))
	got := map[string]string{}
	for _, typ := range holdings(t, s, func(name string) bool { return name != "EDS" }).Types {
		for _, one := range typ.Resources {
			got[typ.Name+" "+one.Name] = strings.Join(config.Names(one.Objects), " ")
		}
	}
	for name, want := range map[string]string{
		"CDS outbound|9080|v1|reviews.shop.example": "destinationrule/shop/reviews serviceentry/shop/reviews",
		"CDS outbound|9080||ratings.shop.example":   "serviceentry/shop/ratings",
		"EDS outbound|9080||ratings.shop.example":   "",
	} {
		if got[name] != want {
			t.Errorf("%s is of %q, want %q", name, got[name], want)
		}
	}
	for _, want := range []string{"virtualservice/shop/reviews", "serviceentry/shop/ratings"} {
		if !strings.Contains(got["RDS 9080"], want) {
			t.Errorf("the routes are of %q, which lacks %s", got["RDS 9080"], want)
		}
	}
}

// TestHoldingsOfARefusal: Holdings has what the proxy kept, and the rejection.
func TestHoldingsOfARefusal(t *testing.T) {
	t.Parallel()
	variants(t, func(t *testing.T, v protocol.Variant) {
		s := xdstest.NewServer(t, catalogue.Types())
		const cluster = "outbound|9080||reviews.shop.example"
		limit := func(body *anypb.Any) uint32 {
			var c clusterv3.Cluster
			if body.UnmarshalTo(&c) != nil || len(c.GetCircuitBreakers().GetThresholds()) == 0 {
				return 0
			}
			return c.GetCircuitBreakers().GetThresholds()[0].GetMaxConnections().GetValue()
		}
		c := xdstest.Dial(t, s.Address, xdstest.ClientOptions{Node: node("10.0.0.1"), Variant: v, Follow: true, Refuse: func(a *xdstest.Answer) string {
			if limit(a.Resources[cluster].Body) == 7 {
				return "no"
			}
			return ""
		}})
		c.Subscribe(xdstest.ClusterType)
		c.Subscribe(xdstest.ListenerType)
		settled(t, s, s.Apply(service("reviews", 9080, "10.1.0.1")))
		s.Apply(pooled)
		clusters := func(name string) bool { return name == "CDS" }
		xdstest.Eventually(t, "the refusal is told", func() bool {
			return slices.ContainsFunc(holdings(t, s, clusters).Types[0].Resources, func(h xds.Holding) bool { return h.Rejected != nil })
		})
		for _, h := range holdings(t, s, clusters).Types[0].Resources {
			if h.Name != cluster {
				if !h.InSync() {
					t.Errorf("%s is not in sync", h.Name)
				}
				continue
			}
			if h.InSync() || h.Rejected == nil || h.Rejected.Message != "no" || limit(h.Desired.Body) != 7 || h.Acked == nil || limit(h.Acked.Body) == 7 {
				t.Errorf("%+v", h.Holding)
			}
			if got := strings.Join(config.Names(h.Objects), " "); got != "destinationrule/shop/reviews serviceentry/shop/reviews" {
				t.Errorf("it is of %s", got)
			}
		}
	})
}

func TestHoldingsOfAProxyThatIsNotConnected(t *testing.T) {
	t.Parallel()
	s := xdstest.NewServer(t, catalogue.Types())
	if _, err := s.XDS.Holdings(t.Context(), "sidecar~10.0.0.1~nobody.shop~shop", nil); !errors.Is(err, xds.ErrNotConnected) {
		t.Errorf("got %v", err)
	}
}
