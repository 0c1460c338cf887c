package xds_test

import (
	"sync/atomic"
	"testing"

	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/resource"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// TestARefusedSecretHoldsUpNothing: a proxy that refuses a new secret keeps the old one; it
// gets everything else, and the next secret.
func TestARefusedSecretHoldsUpNothing(t *testing.T) {
	t.Parallel()
	for _, variant := range []protocol.Variant{protocol.Delta, protocol.StateOfTheWorld} {
		t.Run(variant.String(), func(t *testing.T) {
			t.Parallel()
			var refusing atomic.Bool
			refused := make(chan struct{}, 100)
			s := xdstest.NewServer(t, needyTypes())
			s.Apply(service("a.secrets", 80, "10.1.0.1"), service("b.secrets", 80, "10.1.0.2"), pairSecret(t, "shop/a"), pairSecret(t, "shop/b"))
			c := xdstest.Dial(t, s.Address, xdstest.ClientOptions{Node: node("10.0.0.1"), Variant: variant, Refuse: func(a *xdstest.Answer) string {
				if _, of := a.Resources["kubernetes://a"]; !of || !refusing.Load() {
					return ""
				}
				select {
				case refused <- struct{}{}:
				default:
				}
				return "a bad certificate"
			}})
			c.Subscribe(xdstest.ClusterType)
			c.Subscribe(resource.SecretType, "kubernetes://a", "kubernetes://b")
			awaitSecret(c, "the first secret", "kubernetes://a", present)
			awaitSecret(c, "the other", "kubernetes://b", present)
			first, other := versionOf(c, "kubernetes://a"), versionOf(c, "kubernetes://b")
			refusing.Store(true)
			s.Apply(pairSecret(t, "shop/a"))
			<-refused
			s.Apply(pairSecret(t, "shop/b"), service("c.plain", 80, "10.1.0.3"))
			awaitSecret(c, "another secret", "kubernetes://b", func(v string) bool { return v != "" && v != other })
			c.Await("a new cluster", func(held func(string) map[string]xdstest.Held) bool {
				_, ok := held(xdstest.ClusterType)["outbound|80||c.plain.shop.example"]
				return ok
			})
			if versionOf(c, "kubernetes://a") != first {
				t.Error("the refused secret is in use")
			}
			refusing.Store(false)
			s.Apply(pairSecret(t, "shop/a"))
			awaitSecret(c, "the next secret", "kubernetes://a", func(v string) bool { return v != "" && v != first })
		})
	}
}
