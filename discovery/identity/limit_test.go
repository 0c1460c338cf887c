package identity_test

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/discovery/identity"
)

// knownProof is a Proof that knows one credential from memory.
type knownProof struct {
	proofFunc
	known string
}

func (k knownProof) Knows(credential string, _ netip.Addr) bool { return credential == k.known }

// TestLimitedRefusesWhoGuesses: after twenty failures a source must wait, even with a good
// credential unless memory knows it. Other sources need not.
func TestLimitedRefusesWhoGuesses(t *testing.T) {
	web := identity.Identity{TrustDomain: "cluster.local", Namespace: "shop", ServiceAccount: "web"}
	asked := 0
	now := time.Unix(1_000_000, 0)
	limited := identity.NewLimited(identity.Proofs{knownProof{known: "known", proofFunc: func(credential string) (identity.Identity, error) {
		asked++
		switch credential {
		case "right", "known":
			return web, nil
		case "away":
			return identity.Identity{}, identity.ErrUnavailable
		}
		return identity.Identity{}, fmt.Errorf("%w: %s", identity.ErrUnproven, credential)
	}}}, func() time.Time { return now })
	prove := func(credential, from string) error {
		_, err := limited.Prove(t.Context(), credential, netip.MustParseAddr(from))
		return err
	}
	for range 50 { // neither counts as a failure
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
		err := prove(credential, "10.0.0.1")
		if !errors.Is(err, identity.ErrThrottled) || identity.RetryAfter(err) != 3 || !strings.HasSuffix(err.Error(), "try again in 3 s") {
			t.Errorf("%s after twenty guesses: %v", credential, err)
		}
	}
	if asked != before {
		t.Error("a throttled source is asked about")
	}
	for range 50 {
		if err := prove("known", "10.0.0.1"); err != nil {
			t.Fatalf("what is known from memory: %v", err)
		}
	}
	now = now.Add(2500 * time.Millisecond)
	if err := prove("right", "10.0.0.1"); identity.RetryAfter(err) != 1 {
		t.Errorf("half a second before: %v", err)
	}
	now = now.Add(-2500 * time.Millisecond)
	if err := prove("right", "10.0.0.2"); err != nil {
		t.Errorf("another source: %v", err)
	}
	now = now.Add(3 * time.Second)
	if err := prove("right", "10.0.0.1"); err != nil {
		t.Errorf("after a while: %v", err)
	}
	for i := range 20 { // all in one network
		_ = prove("wrong", fmt.Sprintf("2001:db8::%x", i+1))
	}
	if err := prove("right", "2001:db8::ffff"); !errors.Is(err, identity.ErrThrottled) {
		t.Errorf("another address of a network that guesses: %v", err)
	}
	if err := prove("right", "2001:db8:0:1::1"); err != nil {
		t.Errorf("another network: %v", err)
	}
}

// TestRetryAfter: the default is a minute.
func TestRetryAfter(t *testing.T) {
	for want, err := range map[int]error{60: identity.ErrThrottled, 7: fmt.Errorf("no: %w", &identity.ThrottledError{After: 6100 * time.Millisecond})} {
		if got := identity.RetryAfter(err); got != want {
			t.Errorf("%v: %d s, want %d", err, got, want)
		}
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
