package mcp_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/portolan-mesh/portolan/cache/cachetest"
	"github.com/portolan-mesh/portolan/cache/mcp"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
)

type scene struct {
	*cachetest.Rig
	t testing.TB
	p *peer
	c *mcp.Cache
}

func inEachVariant(t *testing.T, run func(t *testing.T, variant mcp.Variant)) {
	for _, variant := range variants {
		t.Run(string(variant), func(t *testing.T) {
			t.Parallel()
			run(t, variant)
		})
	}
}

// start runs the cache of a peer.
func start(t testing.TB, p *peer, variant mcp.Variant, set ...func(*mcp.Options)) *scene {
	t.Helper()
	c, worker := follow(t, p, variant, set...)
	s := &scene{cachetest.NewRig(t, cachetest.Subject{Cache: c, Worker: worker, ReadOnly: true}), t, p, c}
	s.Launch()
	return s
}

// synced is start, and waits for the peer.
func synced(t testing.TB, p *peer, variant mcp.Variant, set ...func(*mcp.Options)) *scene {
	t.Helper()
	s := start(t, p, variant, set...)
	s.followed()
	s.Eventually("HasSynced", s.c.HasSynced)
	return s
}

// followed waits until the peer is followed.
func (s *scene) followed() {
	s.t.Helper()
	s.Eventually("the peer is followed", func() bool { return s.c.Degraded() == nil })
}

// degraded waits until Degraded contains these words.
func (s *scene) degraded(says string) {
	s.t.Helper()
	s.Eventually("it says "+says, func() bool {
		err := s.c.Degraded()
		return err != nil && strings.Contains(err.Error(), says)
	})
}

// round returns the round of a service entry, "-" for none.
func (s *scene) round(namespace, name string) string {
	return cachetest.Round(s.c.Snapshot().Get(cachetest.Key(namespace, name)))
}

// awaitRounds waits for rounds of service entries, by "namespace/name".
func (s *scene) awaitRounds(rounds map[string]string) {
	s.t.Helper()
	for name, want := range rounds {
		namespace, own, _ := strings.Cut(name, "/")
		s.Eventually(fmt.Sprintf("%s has round %s", name, want), func() bool { return s.round(namespace, own) == want })
	}
}

// TestAReconnectLosesNothing: the peer goes away and comes back with other content.
// Meanwhile its objects are served; afterwards those that it removed are gone.
func TestAReconnectLosesNothing(t *testing.T) {
	t.Parallel()
	inEachVariant(t, func(t *testing.T, variant mcp.Variant) {
		p := newPeer(t, nil)
		p.set(entries, map[string]resource{"a/kept": entry(t, "a", "kept", 1), "a/changed": entry(t, "a", "changed", 1), "a/gone": entry(t, "a", "gone", 1)})
		s := synced(t, p, variant)
		s.awaitRounds(map[string]string{"a/kept": "1", "a/changed": "1", "a/gone": "1"})
		kept := s.c.Snapshot().Get(cachetest.Key("a", "kept"))

		asked := len(p.receivedRequests())
		p.listener.cut(true)
		s.degraded("Unavailable")
		p.set(entries, map[string]resource{"a/changed": entry(t, "a", "changed", 2), "a/gone": {}, "a/new": entry(t, "a", "new", 1)})
		s.awaitRounds(map[string]string{"a/kept": "1", "a/changed": "1", "a/gone": "1", "a/new": "-"})
		if status := s.c.Status(); status.Since.IsZero() || status.Objects != 3 {
			t.Errorf("while the peer is away: %+v", status)
		}

		p.listener.cut(false)
		s.followed()
		s.awaitRounds(map[string]string{"a/kept": "1", "a/changed": "2", "a/gone": "-", "a/new": "1"})
		if s.c.Snapshot().Get(cachetest.Key("a", "kept")) != kept {
			t.Error("an object that is the same was replaced")
		}
		again := slices.DeleteFunc(p.receivedRequests()[asked:], func(r request) bool { return r.nonce != "" })
		i := slices.IndexFunc(again, func(r request) bool { return r.typeURL == entries })
		if i < 0 {
			t.Fatal("service entries were not requested again")
		}
		// The version of the first is empty, so that the peer answers in any case.
		want := map[string]string{"a/changed": "", "a/gone": "1001", "a/kept": "1001"}
		if got := again[i].initial; variant == mcp.Delta && fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("the initial versions are %v, want %v", got, want)
		}
		if node := again[0].node; node.GetMetadata().GetFields()["GENERATOR"].GetStringValue() != "api" || strings.Count(node.GetId(), "~") != 3 {
			t.Errorf("the node is %v", node)
		}
		if slices.ContainsFunc(again[1:], func(r request) bool { return r.node != nil }) {
			t.Error("the node is in more than the first request of a stream")
		}
	})
}

// TestAnotherPeerIsHeldUntilItIsRead: an emptied peer takes no objects away before it
// has answered for each kind.
func TestAnotherPeerIsHeldUntilItIsRead(t *testing.T) {
	t.Parallel()
	inEachVariant(t, func(t *testing.T, variant mcp.Variant) {
		p := newPeer(t, nil)
		p.set(entries, map[string]resource{"a/x": entry(t, "a", "x", 1)})
		s := synced(t, p, variant)
		p.listener.cut(true)
		s.degraded("Unavailable")
		gateways := schema.Gateway.String()
		p.set(entries, map[string]resource{"a/x": {}, "a/y": entry(t, "a", "y", 1)})
		p.change(func() { p.silent[gateways] = true })
		p.listener.cut(false)
		s.degraded("the peer has not answered yet for Gateway")
		s.awaitRounds(map[string]string{"a/x": "1", "a/y": "-"})
		before := s.c.Snapshot()
		p.change(func() { p.silent[gateways] = false })
		s.followed()
		if s.round("a", "x") != "-" || s.round("a", "y") != "1" || s.c.Snapshot().Revision() != before.Revision()+1 {
			t.Errorf("after all answers: x %s, y %s at %s after %s", s.round("a", "x"), s.round("a", "y"), s.c.Snapshot().Version(), before.Version())
		}
	})
}

// TestAPeerThatIsNotRead: no objects of a peer are served before it has answered for
// each kind.
func TestAPeerThatIsNotRead(t *testing.T) {
	t.Parallel()
	inEachVariant(t, func(t *testing.T, variant mcp.Variant) {
		p := newPeer(t, nil)
		p.set(entries, map[string]resource{"a/x": entry(t, "a", "x", 1)})
		p.change(func() { p.silent[schema.Sidecar.String()] = true })
		var late atomic.Int64 // of the clock
		s := start(t, p, variant, func(o *mcp.Options) {
			o.Now = func() time.Time { return time.Unix(3000, late.Load()) }
		})
		s.degraded("not answered yet for Sidecar")
		if s.c.Snapshot() != nil || s.c.HasSynced() || s.c.Ready() == nil {
			t.Error("a peer that was not read as a whole is served")
		}
		if !s.c.Reading() {
			t.Error("a peer that answers is not being read")
		}
		late.Store(int64(time.Minute))
		if s.c.Reading() {
			t.Error("a peer that answers no more is being read")
		}
		p.change(func() { p.silent = map[string]bool{} })
		s.followed()
		s.awaitRounds(map[string]string{"a/x": "1"})
		if s.c.Reading() {
			t.Error("a peer is being read although everything is there")
		}
		if err := s.c.Ready(); err != nil {
			t.Error(err)
		}
	})
}

// TestAPeerWithoutDelta: it is followed in the state of the world, unless the options
// require delta.
func TestAPeerWithoutDelta(t *testing.T) {
	t.Parallel()
	p := newPeer(t, nil)
	p.noDelta = true
	p.set(entries, map[string]resource{"a/x": entry(t, "a", "x", 1)})
	s := synced(t, p, mcp.AnyVariant)
	s.awaitRounds(map[string]string{"a/x": "1"})
	p.set(entries, map[string]resource{"a/x": {}})
	s.awaitRounds(map[string]string{"a/x": "-"})
	if slices.ContainsFunc(p.receivedRequests(), func(r request) bool { return r.delta }) {
		t.Error("a peer without delta was asked by it")
	}
	start(t, p, mcp.Delta).degraded("the peer has no delta")
}

// TestManyVersions: if the versions do not fit into a delta request, the peer is
// followed in the state of the world after a reconnect, and nothing is lost.
func TestManyVersions(t *testing.T) {
	t.Parallel()
	p := newPeer(t, nil)
	p.set(entries, map[string]resource{"a/x": entry(t, "a", "x", 1), "a/y": entry(t, "a", "y", 1)})
	c, worker := follow(t, p, mcp.AnyVariant)
	c.SetMaxRequest(20)
	s := &scene{cachetest.NewRig(t, cachetest.Subject{Cache: c, Worker: worker, ReadOnly: true}), t, p, c}
	s.Launch()
	s.followed()
	p.listener.cut(true)
	s.degraded("Unavailable")
	p.set(entries, map[string]resource{"a/x": {}})
	asked := len(p.receivedRequests())
	p.listener.cut(false)
	s.followed()
	s.awaitRounds(map[string]string{"a/x": "-", "a/y": "1"})
	again := slices.DeleteFunc(p.receivedRequests()[asked:], func(r request) bool { return r.nonce != "" })
	if slices.ContainsFunc(again, func(r request) bool { return r.delta }) {
		t.Error("more versions were stated than fit")
	}
}

// TestDeltaIsPreferred: by a client that accepts either variant.
func TestDeltaIsPreferred(t *testing.T) {
	t.Parallel()
	p := newPeer(t, nil)
	synced(t, p, mcp.AnyVariant)
	if slices.ContainsFunc(p.receivedRequests(), func(r request) bool { return !r.delta }) {
		t.Error("a peer with delta was asked in the state of the world")
	}
}

// TestNoDeleteIsLost cuts a hundred connections while objects change. In the end the
// cache must equal the peer.
func TestNoDeleteIsLost(t *testing.T) {
	t.Parallel()
	inEachVariant(t, func(t *testing.T, variant mcp.Variant) {
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		random := rand.New(rand.NewPCG(seed, 0))
		p := newPeer(t, nil)
		c, worker := follow(t, p, variant)
		s := &scene{cachetest.NewRig(t, cachetest.Subject{Cache: c, Worker: worker, ReadOnly: true}), t, p, c}
		fold := s.Fold()
		s.Launch()
		s.followed()
		want := map[string]string{}
		for round := range 100 {
			for range 1 + random.IntN(3) {
				name := fmt.Sprint("x", random.IntN(20))
				if _, there := want["a/"+name]; there && random.IntN(2) == 0 {
					p.set(entries, map[string]resource{"a/" + name: {}})
					delete(want, "a/"+name)
				} else {
					p.set(entries, map[string]resource{"a/" + name: entry(t, "a", name, round)})
					want["a/"+name] = fmt.Sprint(round)
				}
			}
			p.listener.cut(random.IntN(3) == 0)
			if random.IntN(2) == 0 { // otherwise it is cut again before it is read
				p.listener.cut(false)
				s.followed()
			}
		}
		p.listener.cut(false)
		s.Eventually("the cache has what the peer has", func() bool {
			got := map[string]string{}
			for object := range s.c.Snapshot().List(schema.ServiceEntry, "") {
				got[object.Namespace+"/"+object.Name] = cachetest.Round(object)
			}
			return s.c.Degraded() == nil && fmt.Sprint(got) == fmt.Sprint(want)
		})
		s.Eventually("handlers are done", func() bool { return s.c.Lag() == 0 })
		fold.Check()
	})
}

// TestTooLargeAnswers: they end the stream, and the previous objects are served.
func TestTooLargeAnswers(t *testing.T) {
	t.Parallel()
	inEachVariant(t, func(t *testing.T, variant mcp.Variant) {
		p := newPeer(t, nil)
		p.set(entries, map[string]resource{"a/x": entry(t, "a", "x", 1)})
		s := synced(t, p, variant, func(o *mcp.Options) { o.MaxMessage = 2000 })
		large := cachetest.ServiceEntry("a", "large", 1)
		large.ResourceVersion, large.Annotations = "7", map[string]string{"note": strings.Repeat("x", 4000)}
		p.set(entries, map[string]resource{"a/large": resourceOf(t, large)})
		s.degraded("ResourceExhausted")
		s.awaitRounds(map[string]string{"a/x": "1", "a/large": "-"})
		p.set(entries, map[string]resource{"a/large": {}, "a/y": entry(t, "a", "y", 1)})
		s.followed()
		s.awaitRounds(map[string]string{"a/x": "1", "a/y": "1"})
	})
}

// TestTokens: each stream has the present token.
func TestTokens(t *testing.T) {
	t.Parallel()
	p := newPeer(t, nil)
	var mu sync.Mutex
	token, err := "one", error(nil)
	s := synced(t, p, mcp.AnyVariant, func(o *mcp.Options) {
		o.Token = func() (string, error) { mu.Lock(); defer mu.Unlock(); return token, err }
	})
	last := func() string {
		p.mu.Lock()
		defer p.mu.Unlock()
		return strings.Join(p.headers[len(p.headers)-1].Get("authorization"), ",")
	}
	if got := last(); got != "Bearer one" {
		t.Errorf("the first stream has %q", got)
	}
	set := func(to string, fault error) { mu.Lock(); defer mu.Unlock(); token, err = to, fault }
	set("", errors.New("there is no such file"))
	p.listener.cut(false)
	s.degraded("token: there is no such file")
	p.change(func() { p.denies = status.Error(codes.Unauthenticated, "who are you?") })
	set("two", nil)
	s.degraded("Unauthenticated: who are you?")
	p.change(func() { p.denies = nil })
	s.followed()
	if got := last(); got != "Bearer two" {
		t.Errorf("the last stream has %q", got)
	}
}

// TestTLS: a peer is verified by its certificate, and the error names unreadable files.
func TestTLS(t *testing.T) {
	t.Parallel()
	server, client := certificates(t)
	p := newPeer(t, server)
	p.set(entries, map[string]resource{"a/x": entry(t, "a", "x", 1)})
	s := synced(t, p, mcp.AnyVariant, func(o *mcp.Options) { o.TLS = func() (*tls.Config, error) { return client, nil } })
	s.awaitRounds(map[string]string{"a/x": "1"})
	start(t, p, mcp.AnyVariant, func(o *mcp.Options) { o.TLS = func() (*tls.Config, error) { return &tls.Config{}, nil } }).degraded("certificate")
	start(t, p, mcp.AnyVariant, func(o *mcp.Options) {
		o.TLS = func() (*tls.Config, error) { return nil, errors.New("ca.pem: there is no certificate") }
	}).degraded("TLS: ca.pem: there is no certificate")
	start(t, p, mcp.AnyVariant).degraded("Unavailable")
}

func TestOptions(t *testing.T) {
	t.Parallel()
	secure := func() (*tls.Config, error) { return &tls.Config{}, nil }
	for name, c := range map[string]struct {
		o    mcp.Options
		says string
	}{
		"this machine":            {mcp.Options{Address: "127.0.0.1:15010"}, ""},
		"this machine by name":    {mcp.Options{Address: "localhost:15010"}, ""},
		"this machine in IPv6":    {mcp.Options{Address: "[::1]:15010"}, ""},
		"another machine":         {mcp.Options{Address: "hub.example:15012", TLS: secure}, ""},
		"another in plaintext":    {mcp.Options{Address: "hub.example:15010"}, "in plaintext: use TLS"},
		"a name that looks local": {mcp.Options{Address: "127.0.0.1.example:15010"}, "in plaintext: use TLS"},
		"no port":                 {mcp.Options{Address: "127.0.0.1"}, "no HOST:PORT"},
		"no host":                 {mcp.Options{Address: ":15010"}, "no HOST:PORT"},
		"a variant":               {mcp.Options{Address: "127.0.0.1:1", Variant: mcp.StateOfTheWorld}, ""},
		"another variant":         {mcp.Options{Address: "127.0.0.1:1", Variant: "rest"}, `the variant "rest" is none`},
	} {
		err := c.o.Validate()
		if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
	}
}

// TestRunEnds: while a peer is away, and while it is silent.
func TestRunEnds(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]func(*peer){
		"away":   func(p *peer) { p.listener.cut(true) },
		"silent": func(p *peer) { p.silent[entries] = true },
	} {
		p := newPeer(t, nil)
		prepare(p)
		c, _ := follow(t, p, mcp.Delta, func(o *mcp.Options) { o.RetryMin, o.RetryMax = time.Hour, time.Hour })
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- c.Run(ctx) }()
		s := &scene{cachetest.NewRig(t, cachetest.Subject{Cache: c}), t, p, c}
		s.Eventually(name, func() bool { return !strings.Contains(fmt.Sprint(c.Degraded()), "not called yet") })
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestKinds: the kinds of Istio's API are requested, each once, and no secrets.
func TestKinds(t *testing.T) {
	t.Parallel()
	p := newPeer(t, nil)
	secret := &schema.Schema{GroupVersionKind: config.GroupVersionKind{Version: "v1", Kind: "Password"}, Versions: []string{"v1"}, Codec: config.JSON[struct{}]()}
	kinds := schema.NewSet(append(slices.Clone(schema.Pilot().All()), secret)...)
	synced(t, p, mcp.Delta, func(o *mcp.Options) { o.Schemas = kinds })
	var got, want []string
	for _, r := range p.receivedRequests() {
		if r.nonce == "" {
			got = append(got, r.typeURL)
		}
	}
	for _, kind := range kinds.All() {
		if _, isMessage := kind.Codec.New().(proto.Message); isMessage && !kind.Internal {
			want = append(want, kind.GroupVersionKind.String())
		}
	}
	if !slices.Equal(got, want) || len(got) < 14 {
		t.Errorf("requested are %q, want %q", got, want)
	}
}
