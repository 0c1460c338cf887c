package join_test

import (
	"bytes"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/discovery/identity"
	"github.com/portolan-mesh/portolan/discovery/identity/invitation"
	"github.com/portolan-mesh/portolan/discovery/identity/join"
	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/access"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
)

const root = "istio-system"

func (b *bench) invite(t *testing.T, sources ...string) *join.Made {
	t.Helper()
	made, err := b.Invite(t.Context(), join.Invitation{Namespace: root, Sources: sources, Member: access.StoreMember{
		Name: "cp-2", PeerURL: "https://10.1.2.3:2380", ClientURL: "https://10.1.2.3:2379",
	}})
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// machine returns the hash of a machine's key.
func machine(n byte) []byte { return bytes.Repeat([]byte{n}, 32) }

func TestATokenOfAMemberIsGoodForOneMachine(t *testing.T) {
	t.Parallel()
	b := newBench()
	made := b.invite(t)
	for range 2 { // the second time because the answer was lost
		member, err := b.Admit(t.Context(), made.Token, machine(1), here)
		if err != nil || member.Name != "cp-2" || member.PeerURL != "https://10.1.2.3:2380" {
			t.Fatalf("got %+v, %v", member, err)
		}
	}
	if _, err := b.Admit(t.Context(), made.Token, machine(2), here); !errors.Is(err, identity.ErrUnproven) || !strings.Contains(err.Error(), "jointoken/istio-system/"+made.Name+" was used by another machine") {
		t.Errorf("another machine: %v", err)
	}
	history, err := b.store.History(t.Context(), config.Key{Kind: schema.JoinToken, Namespace: root, Name: made.Name}, 0)
	if err != nil || len(history) != 2 || history[0].Origin.Message != "used as member cp-2 of the store" || history[0].Origin.Address != "10.1.2.3" {
		t.Errorf("the history is %+v, %v", history, err)
	}
	b.now = b.now.Add(join.DefaultTTL)
	if _, err := b.Admit(t.Context(), made.Token, machine(1), here); !errors.Is(err, identity.ErrUnproven) || !strings.Contains(err.Error(), "expired at 2026-11-23T13:00:00Z") {
		t.Errorf("expired: %v", err)
	}
}

func TestWhatLetsNoMemberIn(t *testing.T) {
	t.Parallel()
	b := newBench()
	made, revoked := b.invite(t, "10.0.0.0/8"), b.invite(t)
	if _, err := b.store.Delete(t.Context(), schema.JoinToken, revoked.Name, root, ""); err != nil {
		t.Fatal(err)
	}
	guessed := made.Token[:len(made.Token)-4] + "aaaa"
	workload := b.make(t, join.Request{Namespace: root, ServiceAccount: "web"})
	for name, test := range map[string]struct {
		token, want string
		is          error
	}{
		"revoked":              {revoked.Token, "no such token: it is mistyped, was revoked, or expired long ago", identity.ErrUnproven},
		"guessed":              {guessed, "no such token: it is mistyped, was revoked, or expired long ago", identity.ErrUnproven},
		"short":                {made.Token[:20], "no such token", identity.ErrUnproven},
		"of a workload":        {workload.Token, "by a token of portolan store member invite, and by no other", identity.ErrForeign},
		"of a user":            {"put_abcdef", "by a token of portolan store member invite, and by no other", identity.ErrForeign},
		"of a workload, named": {strings.Replace(workload.Token, join.Prefix, join.MemberPrefix, 1), "no such token", identity.ErrUnproven},
	} {
		if member, err := b.Admit(t.Context(), test.token, machine(1), here); !errors.Is(err, test.is) || !strings.Contains(err.Error(), test.want) || member != nil {
			t.Errorf("%s: %+v, %v", name, member, err)
		}
	}
	if _, err := b.Admit(t.Context(), made.Token, machine(1), there); !errors.Is(err, identity.ErrUnproven) || !strings.Contains(err.Error(), "may not be used from 192.0.2.1: it is for 10.0.0.0/8") {
		t.Errorf("from elsewhere: %v", err)
	}
	// It does not earn a certificate for a workload either.
	for _, token := range []string{made.Token, strings.Replace(made.Token, join.MemberPrefix, join.Prefix, 1)} {
		if who, err := b.Prove(t.Context(), token, here); err == nil {
			t.Errorf("it proves %v", who)
		}
	}
	if _, err := b.Invite(t.Context(), join.Invitation{Namespace: root, TTL: 48 * time.Hour, Member: access.StoreMember{Name: "cp-2"}}); !errors.Is(err, storage.ErrInvalid) || !strings.Contains(err.Error(), "lasts up to 24h") {
		t.Errorf("for two days: %v", err)
	}
	if spec := b.object(t, made); spec.Used != 0 {
		t.Error("a refusal uses the token up")
	}
}

// TestMachinesRaceForOneToken: of fifty machines on two servers one wins.
func TestMachinesRaceForOneToken(t *testing.T) {
	t.Parallel()
	b := newBench()
	made := b.invite(t)
	other := join.New(join.Options{Store: b.store, TrustDomain: "cluster.local", Now: func() time.Time { return b.now }})
	var won atomic.Int32
	var racing sync.WaitGroup
	for i := range 50 {
		racing.Go(func() {
			tokens := []*join.Tokens{b.Tokens, other}[i%2]
			if _, err := tokens.Admit(t.Context(), made.Token, machine(byte(i)), here); err == nil {
				won.Add(1)
			} else if !errors.Is(err, identity.ErrUnproven) {
				t.Errorf("machine %d: %v", i, err)
			}
		})
	}
	racing.Wait()
	if won.Load() != 1 {
		t.Errorf("%d machines won", won.Load())
	}
}

// TestATokenMayHaveAPin: the holder of a token recognizes the server by the pin; servers
// accept the token with and without it.
func TestATokenMayHaveAPin(t *testing.T) {
	t.Parallel()
	b := newBench()
	roots := "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
	made := b.make(t, join.Request{Namespace: "shop", ServiceAccount: "web", Uses: 2})
	pinned := invitation.Pinned(made.Token, roots)
	if token, pin := invitation.Unpin(pinned); token != made.Token || pin != invitation.Pin("a comment\n"+roots) || pin == invitation.Pin(roots+roots) {
		t.Errorf("%q has the pin %q", pinned, pin)
	}
	if invitation.Pinned(made.Token, "") != made.Token {
		t.Error("no roots have a pin")
	}
	for _, token := range []string{pinned, made.Token} {
		if who, err := b.Prove(t.Context(), token, here); err != nil || who != web {
			t.Errorf("%s: %v, %v", token, who, err)
		}
	}
	member := b.invite(t)
	if _, err := b.Admit(t.Context(), invitation.Pinned(member.Token, roots), machine(1), here); err != nil {
		t.Error(err)
	}
}
