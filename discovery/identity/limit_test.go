package identity_test

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/discovery/identity"
)

// TestLimitedRefusesWhoGuesses: after twenty failures a source waits, also with what is
// right; others do not.
func TestLimitedRefusesWhoGuesses(t *testing.T) {
	web := identity.Identity{TrustDomain: "cluster.local", Namespace: "shop", ServiceAccount: "web"}
	asked := 0
	now := time.Unix(1_000_000, 0)
	limited := identity.NewLimited(proofFunc(func(credential string) (identity.Identity, error) {
		asked++
		switch credential {
		case "right":
			return web, nil
		case "away":
			return identity.Identity{}, identity.ErrUnavailable
		}
		return identity.Identity{}, fmt.Errorf("%w: %s", identity.ErrUnproven, credential)
	}), func() time.Time { return now })
	prove := func(credential, from string) error {
		_, err := limited.Prove(t.Context(), credential, netip.MustParseAddr(from))
		return err
	}
	for range 50 { // neither counts
		if prove("right", "10.0.0.1") != nil || !errors.Is(prove("away", "10.0.0.1"), identity.ErrUnavailable) {
			t.Fatal("who fails not is refused")
		}
	}
	for i := range 20 {
		if err := prove("wrong", []string{"10.0.0.1", "::ffff:10.0.0.1"}[i%2]); !errors.Is(err, identity.ErrUnproven) {
			t.Fatalf("guess %d: %v", i, err)
		}
	}
	before := asked
	for _, credential := range []string{"wrong", "right"} {
		if err := prove(credential, "10.0.0.1"); !errors.Is(err, identity.ErrThrottled) {
			t.Errorf("%s after twenty guesses: %v", credential, err)
		}
	}
	if asked != before {
		t.Error("a throttled source is asked about")
	}
	if err := prove("right", "10.0.0.2"); err != nil {
		t.Errorf("another source: %v", err)
	}
	now = now.Add(3 * time.Second)
	if err := prove("right", "10.0.0.1"); err != nil {
		t.Errorf("after a while: %v", err)
	}
	for i := range 20 { // of one network
		_ = prove("wrong", fmt.Sprintf("2001:db8::%x", i+1))
	}
	if err := prove("right", "2001:db8::ffff"); !errors.Is(err, identity.ErrThrottled) {
		t.Errorf("another address of a network that guesses: %v", err)
	}
	if err := prove("right", "2001:db8:0:1::1"); err != nil {
		t.Errorf("another network: %v", err)
	}
}

// TestLimitedForgetsSources: memory is bounded however many sources there are.
func TestLimitedForgetsSources(t *testing.T) {
	limited := identity.NewLimited(proofFunc(func(string) (identity.Identity, error) {
		return identity.Identity{}, identity.ErrUnproven
	}), nil)
	for i := range 30_000 {
		from := netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})
		if _, err := limited.Prove(t.Context(), "wrong", from); !errors.Is(err, identity.ErrUnproven) {
			t.Fatal(err)
		}
	}
	if n := limited.Sources(); n > 10_000 {
		t.Errorf("%d sources are remembered", n)
	}
}
