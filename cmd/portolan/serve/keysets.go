package serve

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/portolan-mesh/portolan/discovery/identity/jwks"
	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/errlist"
	"github.com/portolan-mesh/portolan/storage/etcd"
	"github.com/portolan-mesh/portolan/storage/etcd/election"
	"github.com/portolan-mesh/portolan/storage/keyset"
	"github.com/portolan-mesh/portolan/storage/pulse"
	"github.com/portolan-mesh/portolan/storage/retry"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/xds/mesh"
)

const (
	// keySetInterval is how often the leader looks whether keys were fetched.
	keySetInterval = 500 * time.Millisecond
	// maxKeySources bounds the sources of keys of a mesh, and maxKeyBytes the keys of one.
	maxKeySources = 200
	maxKeyBytes   = 64 << 10
	// maxFetchError bounds the text of an error in a KeySet.
	maxFetchError = 500
)

// keySetWriter fetches the keys that RequestAuthentications name, once for all servers, and writes
// them as KeySets.
type keySetWriter struct {
	store  *etcd.Store
	root   string // the root namespace
	push   func() *mesh.PushContext
	logger *slog.Logger
}

// run implements job.
func (w *keySetWriter) run(ctx context.Context, leader *election.Leader) error {
	store := w.store.Fenced(leader.Client())
	ctx = storage.WithOrigin(ctx, storage.Origin{User: "portolan", Message: "fetched the keys of an issuer"})
	sets := newKeySets(w.root, jwks.Options{Logger: w.logger})
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return sets.keys.Run(ctx) })
	group.Go(func() error {
		for {
			if push := w.push(); push != nil {
				if err := sets.step(ctx, store, push); errors.Is(err, election.ErrNotLeader) {
					return nil
				} else if err != nil && ctx.Err() == nil {
					w.logger.Warn("the keys of an issuer were not written, it will be tried again", "err", err)
				}
			}
			if retry.Sleep(ctx, pulse.Until(keySetInterval)) != nil {
				return nil
			}
		}
	})
	return group.Wait()
}

// keySets decides which KeySets there should be. It is for one goroutine.
type keySets struct {
	root string
	keys *jwks.Fetcher
	now  func() time.Time

	last    *mesh.PushContext // of which sources are those
	sources map[string]jwks.Source
	stored  map[string]*keyset.Fetched // by name, with what was written and is not in last yet
	written map[string]*keyset.Fetched // nil for what was deleted
}

func newKeySets(root string, o jwks.Options) *keySets {
	if o.Now == nil {
		o.Now = time.Now
	}
	return &keySets{root: root, keys: jwks.New(o), now: o.Now, written: map[string]*keyset.Fetched{}}
}

// step begins the fetches that are due, and writes what the ended ones brought.
func (k *keySets) step(ctx context.Context, store storage.Batcher, push *mesh.PushContext) error {
	k.follow(push)
	names := k.ordered()
	few := min(len(names), maxKeySources)
	for _, name := range names[:few] {
		source := k.sources[name]
		k.keys.Follow(source)
		if keys, ended, err := k.keys.Fetched(source); ended {
			if err := k.put(ctx, store, name, k.fetched(name, source, keys, err)); err != nil {
				return err
			}
		}
	}
	for _, name := range names[few:] {
		spec := &keyset.Fetched{Source: sourceOf(k.sources[name]), Error: fmt.Sprintf("the mesh has more than %d sources of keys, and this one is not fetched", maxKeySources)}
		if was := k.stored[name]; was != nil {
			spec.Keys, spec.Since = was.Keys, was.Since
		}
		if err := k.put(ctx, store, name, spec); err != nil {
			return err
		}
	}
	for name := range k.stored {
		if _, used := k.sources[name]; !used {
			if err := k.remove(ctx, store, name); err != nil {
				return err
			}
		}
	}
	return nil
}

// follow takes over the sources and the KeySets of a mesh.
func (k *keySets) follow(push *mesh.PushContext) {
	if push == k.last {
		return
	}
	k.last, k.sources, k.stored = push, map[string]jwks.Source{}, map[string]*keyset.Fetched{}
	for rule := range push.TokenRules() {
		source, ok := keyset.SourceOf(rule)
		if !ok {
			continue
		}
		// Rules that share a source share its fetch: the longest time counts.
		timeout := cmp.Or(rule.GetTimeout().AsDuration(), defaultKeysTimeout)
		if other, ok := k.sources[source.Name()]; ok {
			timeout = max(timeout, other.Timeout)
		}
		k.sources[source.Name()] = jwks.Source{URL: source.URL, Discover: source.Discover, Plaintext: true, Timeout: timeout}
	}
	for object := range push.Inputs().Configs.List(schema.KeySet, k.root) {
		k.stored[object.Name] = object.Spec.(*keyset.Fetched)
	}
	for name, spec := range k.written {
		switch was := k.stored[name]; {
		case spec == nil && was == nil || spec != nil && spec.Same(was):
			delete(k.written, name) // the mesh has it
		case spec == nil:
			delete(k.stored, name)
		default:
			k.stored[name] = spec
		}
	}
}

// defaultKeysTimeout bounds a fetch of keys whose rule does not. (Istio: convertToEnvoyJwtConfig.)
const defaultKeysTimeout = 5 * time.Second

// ordered returns the names of the sources. Those whose keys proxies have come first.
func (k *keySets) ordered() []string {
	names := make([]string, 0, len(k.sources))
	for name := range k.sources {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(k.rank(a)-k.rank(b), cmp.Compare(a, b)) })
	return names
}

func (k *keySets) rank(name string) int {
	if was := k.stored[name]; was != nil && was.Keys != "" {
		return 0
	}
	return 1
}

func sourceOf(s jwks.Source) keyset.Source { return keyset.Source{URL: s.URL, Discover: s.Discover} }

// fetched returns the KeySet of a source after a fetch. The last good keys stay.
func (k *keySets) fetched(name string, source jwks.Source, keys *jwks.Keys, err error) *keyset.Fetched {
	out := &keyset.Fetched{Source: sourceOf(source), Error: errlist.Cause(err)}
	if runes := []rune(out.Error); len(runes) > maxFetchError {
		out.Error = string(runes[:maxFetchError]) + " ..."
	}
	was := k.stored[name]
	if was != nil {
		out.Keys, out.Since = was.Keys, was.Since
	}
	if keys == nil {
		return out
	}
	switch text := keys.Public(); {
	case len(text) > maxKeyBytes:
		out.Error = fmt.Sprintf("%s: its keys have more than %d bytes", source.URL, maxKeyBytes)
	case text != out.Keys:
		since := k.now().UTC().Truncate(time.Minute)
		out.Keys, out.Since = text, &since
	}
	return out
}

// put writes a KeySet if it differs from what is stored.
func (k *keySets) put(ctx context.Context, store storage.Batcher, name string, spec *keyset.Fetched) error {
	if spec.Same(k.stored[name]) {
		return nil
	}
	object := &config.Config{Meta: config.Meta{GroupVersionKind: schema.KeySet, Namespace: k.root, Name: name}, Spec: spec}
	if _, _, err := store.Apply(ctx, []storage.Op{{Verb: storage.Put, Config: object}}); err != nil {
		return fmt.Errorf("%s: %w", object.Key(), err)
	}
	k.stored[name], k.written[name] = spec, spec
	return nil
}

func (k *keySets) remove(ctx context.Context, store storage.Batcher, name string) error {
	key := config.Key{Kind: schema.KeySet, Namespace: k.root, Name: name}
	if _, _, err := store.Apply(ctx, []storage.Op{{Verb: storage.Delete, Key: key}}); err != nil && !errors.Is(err, storage.ErrNotFound) {
		return fmt.Errorf("%s: %w", key, err)
	}
	delete(k.stored, name)
	k.written[name] = nil
	return nil
}
