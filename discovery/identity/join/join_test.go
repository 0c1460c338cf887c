package join_test

import (
	"context"
	"errors"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/discovery/identity"
	"github.com/portolan-mesh/portolan/discovery/identity/join"
	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/access"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/etcd"
	"github.com/portolan-mesh/portolan/storage/etcd/etcdtest"
	"github.com/portolan-mesh/portolan/storage/memory"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// bench is a store in memory with its tokens, and a clock.
type bench struct {
	*join.Tokens
	store *memory.Store
	now   time.Time
}

func newBench() *bench {
	b := &bench{store: memory.New(schema.Pilot(), memory.Options{}), now: time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)}
	b.Tokens = join.New(join.Options{Store: b.store, TrustDomain: "cluster.local", Now: func() time.Time { return b.now }, Held: func(key config.Key) *config.Config {
		object, err := b.store.Get(context.Background(), key.Kind, key.Name, key.Namespace)
		if err != nil {
			return nil
		}
		return object
	}})
	return b
}

func (b *bench) make(t *testing.T, r join.Request) *join.Made {
	t.Helper()
	if r.Namespace == "" {
		r.Namespace, r.ServiceAccount = "shop", "web"
	}
	made, err := b.Create(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func (b *bench) object(t *testing.T, made *join.Made) *access.JoinToken {
	t.Helper()
	object, err := b.store.Get(t.Context(), schema.JoinToken, made.Name, made.Namespace)
	if err != nil {
		t.Fatal(err)
	}
	return object.Spec.(*access.JoinToken)
}

var (
	here  = netip.MustParseAddr("10.1.2.3")
	there = netip.MustParseAddr("192.0.2.1")
	web   = identity.Identity{TrustDomain: "cluster.local", Namespace: "shop", ServiceAccount: "web"}
)

func TestATokenIsGoodForItsUses(t *testing.T) {
	t.Parallel()
	b := newBench()
	made := b.make(t, join.Request{Namespace: "shop", ServiceAccount: "web", Uses: 2})
	if len(made.Token) < 60 || !strings.HasPrefix(made.Token, "pjt_shop_"+made.Name+"_") {
		t.Errorf("the token is %q", made.Token)
	}
	for range 2 {
		if who, err := b.Prove(t.Context(), made.Token, here); err != nil || who != web {
			t.Fatalf("got %v, %v", who, err)
		}
	}
	who, err := b.Prove(t.Context(), made.Token, here)
	if !errors.Is(err, identity.ErrUnproven) || who != (identity.Identity{}) || !strings.Contains(err.Error(), "jointoken/shop/"+made.Name+" is used up: it was good for 2 uses") || strings.Contains(err.Error(), "portolan ") { // who has it knows what makes another
		t.Errorf("used a third time: %v, %v", who, err)
	}
	if spec := b.object(t, made); spec.Used != 2 {
		t.Errorf("used %d times", spec.Used)
	}
	history, err := b.store.History(t.Context(), config.Key{Kind: schema.JoinToken, Namespace: "shop", Name: made.Name}, 0)
	if err != nil || len(history) != 3 {
		t.Fatalf("%d changes, %v", len(history), err)
	}
	last := history[0].Origin
	if last.User != "jointoken/shop/"+made.Name || last.Address != "10.1.2.3" || last.Message != "used as spiffe://cluster.local/ns/shop/sa/web, 2 of 2" {
		t.Errorf("the history says %+v", last)
	}
	for _, change := range history {
		if change.Before != nil && change.Before.Spec.(*access.JoinToken).Hash != nil {
			t.Error("the history has the hash")
		}
	}
}

// TestWhatIsKnown: memory knows a token as long as it proves something, and asking does not
// use it up.
func TestWhatIsKnown(t *testing.T) {
	t.Parallel()
	b := newBench()
	made := b.make(t, join.Request{Namespace: "shop", ServiceAccount: "web", Sources: []string{"10.0.0.0/8"}})
	guess := made.Token[:len(made.Token)-8] + "aaaaaaaa"
	gone := b.make(t, join.Request{Namespace: "shop", ServiceAccount: "web"})
	if _, err := b.store.Delete(t.Context(), schema.JoinToken, gone.Name, gone.Namespace, ""); err != nil {
		t.Fatal(err)
	}
	member := b.invite(t)
	for range 3 {
		if !b.Knows(made.Token, here) || !b.Knows(made.Token+"_roots-"+strings.Repeat("a", 52), here) || !b.KnowsMember(member.Token, machine(1), here) {
			t.Fatal("a good token is not known")
		}
	}
	if b.Knows(made.Token, there) || b.Knows(guess, here) || b.Knows(gone.Token, here) || b.Knows(member.Token, here) || b.Knows("", here) || b.KnowsMember(made.Token, machine(1), here) {
		t.Error("what proves nothing is known")
	}
	if join.New(join.Options{Store: b.store, TrustDomain: "cluster.local"}).Knows(made.Token, here) {
		t.Error("without a memory a token is known")
	}
	if _, err := b.Prove(t.Context(), made.Token, here); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Admit(t.Context(), member.Token, machine(1), here); err != nil {
		t.Fatal(err)
	}
	if b.Knows(made.Token, here) || b.KnowsMember(member.Token, machine(2), here) || !b.KnowsMember(member.Token, machine(1), here) {
		t.Error("a token that is used up is known, or one that its machine may use again is not")
	}
	b.now = b.now.Add(join.MaxMemberTTL)
	if b.KnowsMember(member.Token, machine(1), here) {
		t.Error("a token that has expired is known")
	}
}

// TestTokensThatProveNothing checks the exact refusals. A caller without a genuine token gets
// the same answer whatever is wrong with it.
func TestTokensThatProveNothing(t *testing.T) {
	t.Parallel()
	b := newBench()
	good := b.make(t, join.Request{})
	revoked := b.make(t, join.Request{})
	if _, err := b.store.Delete(t.Context(), schema.JoinToken, revoked.Name, revoked.Namespace, ""); err != nil {
		t.Fatal(err)
	}
	other := b.make(t, join.Request{})
	flipped := good.Token[:len(good.Token)-8] + strings.Map(func(r rune) rune {
		if r == 'b' {
			return 'c'
		}
		return 'b'
	}, good.Token[len(good.Token)-8:len(good.Token)-7]) + good.Token[len(good.Token)-7:]
	unknown := map[string]string{
		"revoked":           revoked.Token,
		"another secret":    flipped,
		"secret of another": good.Token[:len("pjt_shop_")+len(good.Name)] + other.Token[len("pjt_shop_")+len(other.Name):],
		"another namespace": strings.Replace(good.Token, "_shop_", "_bank_", 1),
		"path":              strings.Replace(good.Token, "_shop_", "_../_", 1),
		"cut":               good.Token[:len(good.Token)-1],
		"longer":            good.Token + "a",
		"upper case":        strings.ToUpper(good.Token[:4]) + good.Token[4:],
		"prefix alone":      "pjt_",
		"huge":              "pjt_" + strings.Repeat("a", 1<<20),
		"blank":             good.Token + " ",
	}
	for name, token := range unknown {
		who, err := b.Prove(t.Context(), token, here)
		want := identity.ErrUnproven
		if !join.Is(token) {
			want = identity.ErrForeign
		}
		if !errors.Is(err, want) || who != (identity.Identity{}) {
			t.Errorf("%s: got %v, %v", name, who, err)
		} else if join.Is(token) && err.Error() != join.ErrUnknown.Error() {
			t.Errorf("%s: a guesser is told %q", name, err)
		}
		if strings.Contains(identity.Reason(err), good.Token[len(good.Token)-20:]) {
			t.Errorf("%s: the reason has the secret", name)
		}
	}
	for _, foreign := range []string{"", "eyJhbGciOiJub25lIn0.e30.", "put_abc"} {
		if _, err := b.Prove(t.Context(), foreign, here); !errors.Is(err, identity.ErrForeign) {
			t.Errorf("%q: %v", foreign, err)
		}
	}
	ranged := b.make(t, join.Request{Namespace: "shop", ServiceAccount: "web", Sources: []string{"10.0.0.0/8", "2001:db8::1"}})
	for from, want := range map[netip.Addr]string{
		there:                              "may not be used from 192.0.2.1: it is for 10.0.0.0/8, 2001:db8::1/128",
		{}:                                 "may not be used from an unknown address",
		netip.MustParseAddr("2001:db8::2"): "may not be used from 2001:db8::2",
	} {
		if _, err := b.Prove(t.Context(), ranged.Token, from); !errors.Is(err, identity.ErrUnproven) || !strings.Contains(err.Error(), want) {
			t.Errorf("from %v: %v", from, err)
		}
	}
	if _, err := b.Prove(t.Context(), ranged.Token, netip.MustParseAddr("::ffff:10.9.9.9")); err != nil {
		t.Errorf("an IPv4 address in IPv6: %v", err)
	}
	b.now = b.now.Add(time.Hour)
	if _, err := b.Prove(t.Context(), good.Token, here); !errors.Is(err, identity.ErrUnproven) || !strings.Contains(err.Error(), "expired at 2026-11-23T13:00:00Z") {
		t.Errorf("expired: %v", err)
	}
	if spec := b.object(t, good); spec.Used != 0 {
		t.Error("a refusal counts as a use")
	}
}

func TestRequestsThatCannotBeMet(t *testing.T) {
	t.Parallel()
	b := newBench()
	for want, r := range map[string]join.Request{
		"service account":        {Namespace: "shop"},
		"namespace":              {ServiceAccount: "web"},
		"lower case letters":     {Namespace: "Shop_1", ServiceAccount: "web"},
		"ttl 1ms":                {Namespace: "shop", ServiceAccount: "web", TTL: time.Millisecond},
		"ttl -1s":                {Namespace: "shop", ServiceAccount: "web", TTL: -time.Second},
		"ttl 9000h0m0s":          {Namespace: "shop", ServiceAccount: "web", TTL: 9000 * time.Hour},
		"uses -1":                {Namespace: "shop", ServiceAccount: "web", Uses: -1},
		"uses 1000000":           {Namespace: "shop", ServiceAccount: "web", Uses: 1_000_000},
		`"10.0.0.0/33" is no`:    {Namespace: "shop", ServiceAccount: "web", Sources: []string{"10.0.0.0/33"}},
		`"fe80::1%eth0" is no`:   {Namespace: "shop", ServiceAccount: "web", Sources: []string{"fe80::1%eth0"}},
		"65 ranges of addresses": {Namespace: "shop", ServiceAccount: "web", Sources: make([]string, 65)},
	} {
		if made, err := b.Create(t.Context(), r); !errors.Is(err, storage.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: got %v, %v; want %s", r, made, err, want)
		}
	}
}

// faulty is a store whose updates return err; land says whether they are written all the same.
type faulty struct {
	*memory.Store
	land bool
	err  error
}

func (f faulty) Update(ctx context.Context, object *config.Config) (string, error) {
	if f.land {
		if _, err := f.Store.Update(ctx, object); err != nil {
			return "", err
		}
	}
	return "", f.err
}

// TestAUseThatMayNotBeWrittenIsNone: a use whose outcome is unknown lets nobody in, whether it
// was written or not.
func TestAUseThatMayNotBeWrittenIsNone(t *testing.T) {
	t.Parallel()
	for _, land := range []bool{false, true} {
		for _, fault := range []error{storage.ErrOutcomeUnknown, storage.ErrUnavailable} {
			b := newBench()
			made := b.make(t, join.Request{})
			broken := join.New(join.Options{Store: faulty{b.store, land, fault}, TrustDomain: "cluster.local", Now: func() time.Time { return b.now }})
			if who, err := broken.Prove(t.Context(), made.Token, here); !errors.Is(err, identity.ErrUnavailable) || who != (identity.Identity{}) {
				t.Errorf("landed %v, %v: got %v, %v", land, fault, who, err)
			}
			_, err := b.Prove(t.Context(), made.Token, here)
			if (err == nil) == land {
				t.Errorf("landed %v, %v: then %v", land, fault, err)
			}
		}
	}
}

func TestCleanRemovesWhatExpiredADayAgo(t *testing.T) {
	t.Parallel()
	b := newBench()
	short, long := b.make(t, join.Request{}), b.make(t, join.Request{Namespace: "shop", ServiceAccount: "web", TTL: 2 * time.Hour})
	for want, now := range []time.Time{b.now.Add(join.Kept + time.Hour - time.Second), b.now.Add(join.Kept + time.Hour)} {
		all, err := b.store.List(t.Context(), schema.JoinToken, "")
		if err != nil {
			t.Fatal(err)
		}
		if n, err := join.Clean(t.Context(), b.store, all, now); err != nil || n != want {
			t.Errorf("at %v: %d removed, %v", now, n, err)
		}
	}
	if _, err := b.store.Get(t.Context(), schema.JoinToken, short.Name, "shop"); !errors.Is(err, storage.ErrNotFound) {
		t.Errorf("the expired one: %v", err)
	}
	b.object(t, long)
}

// TestOneWinnerOfARace: fifty clients use one token at two servers that share an etcd. As many
// get in as the token has uses.
func TestOneWinnerOfARace(t *testing.T) {
	t.Parallel()
	endpoint := etcdtest.Listen(t)
	var servers [2]*join.Tokens
	for i := range servers {
		store, err := etcd.New(etcdtest.Dial(t, endpoint), etcd.Options{Schemas: schema.Pilot()})
		if err != nil {
			t.Fatal(err)
		}
		servers[i] = join.New(join.Options{Store: store, TrustDomain: "cluster.local"})
	}
	for _, uses := range []int{1, 7} {
		made, err := servers[0].Create(t.Context(), join.Request{Namespace: "shop", ServiceAccount: "web", Uses: uses})
		if err != nil {
			t.Fatal(err)
		}
		var winners atomic.Int64
		var clients sync.WaitGroup
		for i := range 50 {
			clients.Go(func() {
				who, err := servers[i%2].Prove(t.Context(), made.Token, here)
				switch {
				case err == nil && who == web:
					winners.Add(1)
				case !errors.Is(err, identity.ErrUnproven) || !strings.Contains(err.Error(), "is used up"):
					t.Errorf("client %d: %v", i, err)
				}
			})
		}
		clients.Wait()
		if got := winners.Load(); got != int64(uses) {
			t.Errorf("%d clients got in by a token of %d uses", got, uses)
		}
	}
}

// FuzzProve: only the token itself gets in, and no text breaks anything.
func FuzzProve(f *testing.F) {
	b := newBench()
	made, err := b.Create(f.Context(), join.Request{Namespace: "shop", ServiceAccount: "web", Uses: 10})
	if err != nil {
		f.Fatal(err)
	}
	for _, seed := range []string{made.Token, made.Token + "=", "pjt_", "pjt___", "pjt_shop_" + made.Name + "_", strings.ToUpper(made.Token), "", "\xff"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		namespace, name, ok := join.Parse(text)
		if ok && url.PathEscape(namespace) != namespace {
			t.Errorf("%q has the namespace %q", text, namespace)
		}
		if text == made.Token {
			if !ok || name != made.Name {
				t.Error("the token cannot be read")
			}
			return
		}
		if who, err := b.Prove(t.Context(), text, here); err == nil {
			t.Errorf("%q is taken for %v", text, who)
		}
	})
}
