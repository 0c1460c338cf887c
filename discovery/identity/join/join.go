package join

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/portolan-mesh/portolan/discovery/identity"
	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/access"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
)

const (
	// DefaultTTL is how long a token can be used if the request does not say.
	DefaultTTL = time.Hour
	// MaxTTL and MaxUses bound the TTL and Uses of a Request.
	MaxTTL  = 366 * 24 * time.Hour
	MaxUses = 100_000
	// maxSources is how many ranges of addresses a token may have.
	maxSources = 64
	// Kept is how long an expired token is still listed.
	Kept = 24 * time.Hour
)

// A Store keeps the objects of tokens. Get must show every acknowledged write.
type Store interface {
	Get(ctx context.Context, kind config.GroupVersionKind, name, namespace string) (*config.Config, error)
	Create(ctx context.Context, object *config.Config) (revision string, err error)
	Update(ctx context.Context, object *config.Config) (revision string, err error)
	Delete(ctx context.Context, kind config.GroupVersionKind, name, namespace, resourceVersion string) (revision string, err error)
}

// Options configure Tokens. Store and TrustDomain are required.
type Options struct {
	Store       Store
	TrustDomain string
	// May returns why the sender of a config API request may not make a token for an identity,
	// nil if the sender may. A nil May allows every identity to everybody who may make tokens.
	May func(context.Context, identity.Identity) error
	// Held returns the object of a token from the server's memory, nil if it is not there. A
	// nil Held means that memory knows no token.
	Held func(config.Key) *config.Config
	// Roots returns the authorities of the server's certificate, in PEM, to go with a token;
	// nil means none. If it fails, no token is made.
	Roots func(context.Context) (string, error)
	// Now is the clock; nil stands for time.Now.
	Now func() time.Time
}

// Tokens makes join tokens, and verifies them as an identity.Proof.
type Tokens struct{ o Options }

// New returns the tokens of a store.
func New(o Options) *Tokens {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.May == nil {
		o.May = func(context.Context, identity.Identity) error { return nil }
	}
	return &Tokens{o}
}

func (t *Tokens) roots(ctx context.Context) (string, error) {
	if t.o.Roots == nil {
		return "", nil
	}
	return t.o.Roots(ctx)
}

// A Request describes the token to make.
type Request struct {
	// Namespace and ServiceAccount are the identity of the token's holder.
	Namespace, ServiceAccount string
	// TTL is how long the token can be used; 0 means DefaultTTL.
	TTL time.Duration
	// Uses is how often the token can be used; 0 means once.
	Uses int
	// Sources are the addresses, or ranges of addresses, from which the token can be used;
	// none means all.
	Sources []string
}

// Made is a newly made token. Only here is its text.
type Made struct {
	Token, Namespace, Name string
	Spec                   *access.JoinToken
	// Revision is the revision of the store at which the token was made.
	Revision string
}

// Order makes a token for the sender of a request to the config API, whom Options.May must
// permit it. It also returns the Roots to go with the token.
func (t *Tokens) Order(ctx context.Context, r Request) (made *Made, roots string, err error) {
	if who, err := identity.New(t.o.TrustDomain, r.Namespace, r.ServiceAccount); err == nil { // if it fails, Create returns the error
		if err := t.o.May(ctx, who); err != nil {
			return nil, "", err
		}
	}
	if roots, err = t.roots(ctx); err != nil {
		return nil, "", err
	}
	made, err = t.Create(ctx, r)
	return made, roots, err
}

// Create makes a token. It does not check the caller's rights. It returns errors of package
// storage, and ErrInvalid for a faulty request.
func (t *Tokens) Create(ctx context.Context, r Request) (*Made, error) {
	spec, err := t.spec(r)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", storage.ErrInvalid, err)
	}
	token, name := newToken(Prefix, r.Namespace)
	spec.Hash = hash(token)
	object := &config.Config{Meta: config.Meta{GroupVersionKind: schema.JoinToken, Namespace: r.Namespace, Name: name}, Spec: spec}
	revision, err := t.o.Store.Create(ctx, object)
	if err != nil {
		return nil, err
	}
	return &Made{Token: token, Namespace: r.Namespace, Name: name, Spec: spec, Revision: revision}, nil
}

// spec returns the spec of a requested token, without the hash.
func (t *Tokens) spec(r Request) (*access.JoinToken, error) {
	if _, err := identity.New(t.o.TrustDomain, r.Namespace, r.ServiceAccount); err != nil {
		return nil, err
	}
	if _, _, ok := Parse(Prefix + r.Namespace + "_" + encoding.EncodeToString(make([]byte, nameBytes)) + "_" + encoding.EncodeToString(make([]byte, secretBytes))); !ok {
		return nil, fmt.Errorf("namespace %q is not lower case letters, digits and dashes", r.Namespace)
	}
	ttl, uses := cmp.Or(r.TTL, DefaultTTL), cmp.Or(r.Uses, 1)
	switch {
	case ttl < time.Second || ttl > MaxTTL:
		return nil, fmt.Errorf("ttl %s: a token lasts from a second to %s", ttl, MaxTTL)
	case uses < 1 || uses > MaxUses:
		return nil, fmt.Errorf("uses %d: a token can be used from 1 to %d times", uses, MaxUses)
	case len(r.Sources) > maxSources:
		return nil, fmt.Errorf("%d ranges of addresses: a token may have %d", len(r.Sources), maxSources)
	}
	spec := &access.JoinToken{ServiceAccount: r.ServiceAccount, Uses: uses, Expires: t.o.Now().Add(ttl).UTC().Truncate(time.Second)}
	for _, text := range r.Sources {
		prefix, err := parseSource(text)
		if err != nil {
			return nil, err
		}
		spec.Sources = append(spec.Sources, prefix.String())
	}
	return spec, nil
}

// parseSource reads a range of addresses, or one address.
func parseSource(text string) (netip.Prefix, error) {
	if one, err := netip.ParseAddr(text); err == nil && one.Zone() == "" {
		one = one.Unmap()
		return netip.PrefixFrom(one, one.BitLen()), nil
	}
	prefix, err := netip.ParsePrefix(text)
	if err != nil || prefix.Addr().Is4In6() {
		return netip.Prefix{}, fmt.Errorf("%q is no range of addresses such as 10.0.0.0/8", text)
	}
	return prefix.Masked(), nil
}

// Clean deletes from the store those JoinToken objects that expired longer than Kept ago, and
// returns how many it deleted.
func Clean(ctx context.Context, store Store, objects []*config.Config, now time.Time) (removed int, err error) {
	for _, object := range objects {
		spec, ok := object.Spec.(*access.JoinToken)
		if !ok || now.Sub(spec.Expires) < Kept {
			continue
		}
		switch _, err := store.Delete(ctx, schema.JoinToken, object.Name, object.Namespace, object.ResourceVersion); {
		case errors.Is(err, storage.ErrNotFound), errors.Is(err, storage.ErrConflict):
		case err != nil:
			return removed, err
		default:
			removed++
		}
	}
	return removed, nil
}

// addressAllowed allows every address if there are no sources.
func addressAllowed(sources []string, from netip.Addr) bool {
	return len(sources) == 0 || slices.ContainsFunc(sources, func(text string) bool {
		prefix, err := netip.ParsePrefix(text)
		return err == nil && prefix.Contains(from.Unmap())
	})
}

// Seal refuses every object: only the server that makes a token
// knows its hash, and a used or revoked token must not come back.
func (t *Tokens) Seal(_ context.Context, object, _ *config.Config, _ bool) (*config.Config, error) {
	return nil, fmt.Errorf("%w: a join token is made by portolan token create, and neither written nor brought back: make another, and revoke %s if it is there",
		storage.ErrInvalid, object.Name)
}
