package xds_test

import (
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/portolan-mesh/portolan/storage/logtest"
	"github.com/portolan-mesh/portolan/xds"
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

// TestASecretThatIsTakenBackIsNotRefused: a proxy may go on requesting a secret that nothing of it
// needs any more, as its draining listeners do. Only a request for a secret that it was never given
// is logged.
func TestASecretThatIsTakenBackIsNotRefused(t *testing.T) {
	t.Parallel()
	for _, variant := range []protocol.Variant{protocol.Delta, protocol.StateOfTheWorld} {
		t.Run(variant.String(), func(t *testing.T) {
			t.Parallel()
			log := &logtest.Log{}
			s := xdstest.NewServer(t, needyTypes(), func(o *xds.Options) { o.Logger = slog.New(slog.NewTextHandler(log, nil)) })
			s.Apply(service("a.secrets", 80, "10.1.0.1"), pairSecret(t, "shop/a"), pairSecret(t, "shop/b"))
			c := xdstest.Dial(t, s.Address, xdstest.ClientOptions{Node: node("10.0.0.1"), Variant: variant})
			c.Subscribe(xdstest.ClusterType)
			c.Subscribe(resource.SecretType, "kubernetes://a")
			awaitSecret(c, "the secret", "kubernetes://a", present)
			s.Delete(service("a.secrets", 80, "10.1.0.1"))
			c.Await("that the cluster goes", func(held func(string) map[string]xdstest.Held) bool {
				_, ok := held(xdstest.ClusterType)["outbound|80||a.secrets.shop.example"]
				return !ok
			})
			if variant == protocol.Delta { // in state of the world a client keeps it
				awaitSecret(c, "that the secret goes", "kubernetes://a", func(v string) bool { return v == "" })
			}
			c.Subscribe(resource.SecretType, "kubernetes://a", "kubernetes://b")
			xdstest.Eventually(t, "the request for the other is logged", func() bool { return strings.Contains(log.String(), "secrets=1 first=kubernetes://b") })
			if n := strings.Count(log.String(), "it is not given"); n != 1 {
				t.Errorf("the server logs %d requests: %s", n, log)
			}
		})
	}
}
