package identity_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"testing"

	"github.com/portolan-mesh/portolan/discovery/identity"
)

type proofFunc func(credential string) (identity.Identity, error)

func (f proofFunc) Prove(_ context.Context, credential string, _ netip.Addr) (identity.Identity, error) {
	return f(credential)
}

func TestProofsAskTheFirstThatTakesACredential(t *testing.T) {
	web := identity.Identity{TrustDomain: "cluster.local", Namespace: "shop", ServiceAccount: "web"}
	takes := func(mine string, i identity.Identity, err error) identity.Proof {
		return proofFunc(func(credential string) (identity.Identity, error) {
			if credential != mine {
				return identity.Identity{}, identity.ErrForeign
			}
			return i, err
		})
	}
	proofs := identity.Proofs{takes("wrong", identity.Identity{}, identity.ErrUnproven), takes("right", web, nil), takes("wrong", web, nil)}
	for credential, want := range map[string]error{"right": nil, "wrong": identity.ErrUnproven, "else": identity.ErrForeign, "": identity.ErrForeign} {
		got, err := proofs.Prove(t.Context(), credential, netip.Addr{})
		if !errors.Is(err, want) || (err == nil) != (got == web) {
			t.Errorf("%q: got %v, %v; want %v", credential, got, err, want)
		}
	}
}

func TestReasonIsForTheLogAlone(t *testing.T) {
	err := fmt.Errorf("certificate for web: %w", &identity.RefusedError{Err: identity.ErrUnproven, Detail: "token 7f has another secret"})
	if !errors.Is(err, identity.ErrUnproven) || err.Error() != "certificate for web: "+identity.ErrUnproven.Error() {
		t.Errorf("the caller is told %q", err)
	}
	if got, want := identity.Reason(err), err.Error()+": token 7f has another secret"; got != want {
		t.Errorf("the reason is %q, want %q", got, want)
	}
	if got := identity.Reason(identity.ErrForeign); got != identity.ErrForeign.Error() {
		t.Errorf("the reason is %q", got)
	}
}
