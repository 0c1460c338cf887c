package serve

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	securityv1beta1 "istio.io/api/security/v1beta1"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/discovery/identity/jwks"
	"github.com/portolan-mesh/portolan/discovery/identity/jwks/jwkstest"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/keyset"
	"github.com/portolan-mesh/portolan/storage/memory"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/xds/mesh"
)

// keyBench is a store with RequestAuthentications, and a leader that fetches their keys.
type keyBench struct {
	t       *testing.T
	store   *memory.Store
	sets    *keySets
	seconds atomic.Int64
	rules   []*securityv1beta1.JWTRule
}

func newKeyBench(t *testing.T, rules ...*securityv1beta1.JWTRule) *keyBench {
	b := &keyBench{t: t, store: memory.New(schema.Pilot(), memory.Options{}), rules: rules}
	b.lead()
	return b
}

// lead has another server lead.
func (b *keyBench) lead() {
	sets := newKeySets("istio-system", jwks.Options{Now: func() time.Time { return time.Unix(1_800_000_000+b.seconds.Load(), 0) }})
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = sets.keys.Run(ctx) })
	b.t.Cleanup(func() {
		stop()
		running.Wait()
	})
	b.sets = sets
}

// mesh returns the mesh as it is in the store now.
func (b *keyBench) mesh() *mesh.PushContext {
	objects := pmap.Map[*config.Config]{}
	stored, err := b.store.List(b.t.Context(), schema.KeySet, "")
	if err != nil {
		b.t.Fatal(err)
	}
	for _, object := range stored {
		objects = objects.Set(object.Key().Path(), object)
	}
	policy := &config.Config{Meta: config.Meta{GroupVersionKind: schema.RequestAuthentication, Namespace: "shop", Name: "a"}, Spec: &securityv1beta1.RequestAuthentication{JwtRules: b.rules}}
	objects = objects.Set(policy.Key().Path(), policy)
	return mesh.New(mesh.Inputs{Configs: cache.NewSnapshot(1, objects)})
}

func (b *keyBench) step() {
	b.t.Helper()
	if err := b.sets.step(b.t.Context(), b.store, b.mesh()); err != nil {
		b.t.Fatal(err)
	}
}

// await lets the leader work until the KeySet of a source is as is says; nil is none.
func (b *keyBench) await(source keyset.Source, is func(*keyset.Fetched) bool) *keyset.Fetched {
	b.t.Helper()
	for limit := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
		b.step()
		var spec *keyset.Fetched
		if object, err := b.store.Get(b.t.Context(), schema.KeySet, source.Name(), "istio-system"); err == nil {
			spec = object.Spec.(*keyset.Fetched)
		}
		if is(spec) {
			return spec
		}
		if time.Now().After(limit) {
			b.t.Fatalf("the KeySet is %+v", spec)
		}
	}
}

// awaitFetches lets the leader work until there were some fetches, and it knows what they brought.
func (b *keyBench) awaitFetches(issuer *jwkstest.Issuer, n int64) {
	b.t.Helper()
	ended := func() bool {
		for _, source := range b.sets.sources {
			if _, ended, _ := b.sets.keys.Fetched(source); !ended {
				return false
			}
		}
		return true
	}
	for limit := time.Now().Add(30 * time.Second); issuer.Fetches.Load() < n || !ended(); time.Sleep(time.Millisecond) {
		b.step()
		if time.Now().After(limit) {
			b.t.Fatalf("%d fetches", issuer.Fetches.Load())
		}
	}
	b.step()
}

func uri(url string) (*securityv1beta1.JWTRule, keyset.Source) {
	return &securityv1beta1.JWTRule{Issuer: "a", JwksUri: url}, keyset.Source{URL: url}
}

func has(id string) func(*keyset.Fetched) bool {
	return func(f *keyset.Fetched) bool {
		return f != nil && f.Error == "" && strings.Contains(f.Keys, `"kid":"`+id+`"`)
	}
}

// TestKeySets: a source has a KeySet while a rule names it, with the keys as they were when a fetch
// last brought others, and with the reason why one fails.
func TestKeySets(t *testing.T) {
	t.Parallel()
	issuer := jwkstest.Plain(t)
	rule, source := uri(issuer.URL + "/keys")
	discovered := keyset.Source{URL: issuer.URL, Discover: true}
	b := newKeyBench(t, rule, &securityv1beta1.JWTRule{Issuer: issuer.URL}, rule, &securityv1beta1.JWTRule{Issuer: "b", Jwks: string(issuer.Set())})
	first := b.await(source, has("first"))
	b.await(discovered, has("first"))
	if n := issuer.Fetches.Load(); n != 2 {
		t.Errorf("%d fetches", n)
	}
	if first.Since == nil || first.Since.Second() != 0 {
		t.Errorf("since %v", first.Since)
	}
	all, _ := b.store.List(t.Context(), schema.KeySet, "")
	if len(all) != 2 {
		t.Errorf("%d KeySets", len(all))
	}

	version := b.store.Version()
	b.seconds.Add(int64(jwks.DefaultRefresh / time.Second)) // the same keys again
	b.awaitFetches(issuer, 4)
	if issuer.Fetches.Load() != 4 || b.store.Version() != version {
		t.Errorf("%d fetches, version %s after %s", issuer.Fetches.Load(), b.store.Version(), version)
	}

	issuer.Rotate(t, "second")
	b.seconds.Add(int64(jwks.DefaultRefresh / time.Second))
	second := b.await(source, has("second"))
	if !second.Since.After(*first.Since) {
		t.Errorf("since %v, then %v", first.Since, second.Since)
	}

	issuer.Answer(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusInternalServerError) })
	b.seconds.Add(int64(jwks.DefaultRefresh / time.Second))
	failed := b.await(source, func(f *keyset.Fetched) bool { return f.Error != "" })
	if failed.Keys != second.Keys || !failed.Since.Equal(*second.Since) || !strings.Contains(failed.Error, "500 Internal Server Error") {
		t.Errorf("a fetch fails: %+v", failed)
	}
	b.lead() // of a server that knows nothing
	b.awaitFetches(issuer, issuer.Fetches.Load()+2)
	if f := b.await(source, func(f *keyset.Fetched) bool { return f != nil }); f.Keys != second.Keys {
		t.Errorf("another leader: %+v", f)
	}
	issuer.Answer(nil)
	b.seconds.Add(int64(jwks.DefaultPause / time.Second))
	b.await(source, has("second"))

	b.rules = b.rules[1:2]
	b.await(source, func(f *keyset.Fetched) bool { return f == nil })
	b.await(discovered, has("second"))
	b.rules = nil
	b.await(discovered, func(f *keyset.Fetched) bool { return f == nil })
}

// TestKeysThatWereNeverFetched: the KeySet says why, and has no keys.
func TestKeysThatWereNeverFetched(t *testing.T) {
	t.Parallel()
	issuer := jwkstest.Plain(t)
	for want, answer := range map[string]http.HandlerFunc{
		"404":                   http.NotFound,
		"it is no JSON Web Key": func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) },
		"it has no public key that verifies": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte(`{"keys":[{"kty":"oct","k":"AQAB"}]}`))
		},
		"it has more than": func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 1<<20)) },
	} {
		rule, source := uri(issuer.URL + "/keys?" + strings.ReplaceAll(want, " ", "+"))
		issuer.Answer(answer)
		b := newKeyBench(t, rule)
		got := b.await(source, func(f *keyset.Fetched) bool { return f != nil })
		if got.Keys != "" || got.Since != nil || !strings.Contains(got.Error, want) {
			t.Errorf("%s: %+v", want, got)
		}
	}
}

// TestSourcesOfKeysAreBounded: those that proxies have keys of go on.
func TestSourcesOfKeysAreBounded(t *testing.T) {
	t.Parallel()
	issuer := jwkstest.Plain(t)
	rule, source := uri(issuer.URL + "/keys")
	b := newKeyBench(t, rule)
	b.await(source, has("first"))
	var last keyset.Source
	for i := range maxKeySources {
		more, at := uri(issuer.URL + "/keys?" + strings.Repeat("x", i+1))
		b.rules = append(b.rules, more)
		if last.Name() < at.Name() {
			last = at
		}
	}
	b.await(last, func(f *keyset.Fetched) bool { return f != nil && strings.Contains(f.Error, "more than 200 sources") })
	b.await(source, has("first"))
}
