package join

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/portolan-mesh/portolan/discovery/identity"
	"github.com/portolan-mesh/portolan/discovery/identity/invitation"
	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/access"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/retry"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// firstWait and longestWait bound the pause between attempts while several clients use one
// token.
const (
	firstWait   = 5 * time.Millisecond
	longestWait = 200 * time.Millisecond
)

// ErrUnknown is the refusal of a token that belongs to no object. It does not reveal whether
// there was one.
var ErrUnknown = fmt.Errorf("%w: no such join token: it is mistyped, was revoked, or expired long ago: make another", identity.ErrUnproven)

// Prove implements identity.Proof. It counts one use of the token before it returns the
// identity. If it does not learn whether the count was written, it refuses, and the use may be
// lost.
func (t *Tokens) Prove(ctx context.Context, credential string, from netip.Addr) (identity.Identity, error) {
	if !Is(credential) {
		return identity.Identity{}, identity.ErrForeign
	}
	credential, _ = invitation.Unpin(credential)
	namespace, name, ok := Parse(credential)
	if !ok {
		return identity.Identity{}, &identity.RefusedError{Err: ErrUnknown, Detail: "it does not have the form of one"}
	}
	sum := hash(credential)
	wait := retry.NewFair(firstWait, longestWait)
	for {
		object, err := t.o.Store.Get(ctx, schema.JoinToken, name, namespace)
		if err != nil {
			return identity.Identity{}, readRefusal(namespace, name, err)
		}
		who, err := t.checkAndCount(ctx, object, sum, from)
		if !errors.Is(err, storage.ErrConflict) {
			return who, err
		}
		if err := wait.Wait(ctx); err != nil {
			return identity.Identity{}, fmt.Errorf("%w: others use the same join token: %w", identity.ErrUnavailable, err)
		}
	}
}

// readRefusal returns the refusal when the object of a token could not be read.
func readRefusal(namespace, name string, err error) error {
	if errors.Is(err, storage.ErrNotFound) {
		return &identity.RefusedError{Err: ErrUnknown, Detail: fmt.Sprintf("there is no jointoken/%s/%s", namespace, name)}
	}
	return &identity.RefusedError{Err: fmt.Errorf("%w: the store cannot be read: try again", identity.ErrUnavailable), Detail: err.Error()}
}

// Knows implements identity.Knower.
func (t *Tokens) Knows(credential string, from netip.Addr) bool {
	credential, _ = invitation.Unpin(credential)
	object := t.tokenObject(credential)
	if object == nil {
		return false
	}
	_, _, err := t.check(object, hash(credential), from)
	return err == nil
}

// tokenObject returns the object of a join token from memory, nil if it is not there. An invitation
// must be given with the prefix of a join token.
func (t *Tokens) tokenObject(token string) *config.Config {
	namespace, name, ok := Parse(token)
	if !ok || t.o.Held == nil {
		return nil
	}
	return t.o.Held(config.Key{Kind: schema.JoinToken, Namespace: namespace, Name: name})
}

// check checks a token against its object, and returns the identity of the token's holder.
func (t *Tokens) check(object *config.Config, sum []byte, from netip.Addr) (spec *access.JoinToken, who identity.Identity, err error) {
	spec, ok := object.Spec.(*access.JoinToken)
	if !ok || spec.Member != nil || subtle.ConstantTimeCompare(sum, spec.Hash) != 1 {
		return nil, identity.Identity{}, &identity.RefusedError{Err: ErrUnknown, Detail: fmt.Sprintf("%s has another secret", object.Key())}
	}
	if err := t.refusal(object, spec, from); err != nil {
		return nil, identity.Identity{}, err
	}
	if who, err = identity.New(t.o.TrustDomain, object.Namespace, spec.ServiceAccount); err != nil {
		return nil, identity.Identity{}, fmt.Errorf("%w: %s: %w", identity.ErrUnproven, object.Key(), err)
	}
	return spec, who, nil
}

// checkAndCount returns a storage.ErrConflict if the object has changed since.
func (t *Tokens) checkAndCount(ctx context.Context, object *config.Config, sum []byte, from netip.Addr) (identity.Identity, error) {
	spec, who, err := t.check(object, sum, from)
	if err != nil {
		return identity.Identity{}, err
	}
	used, counted := *object, *spec
	counted.Used++
	used.Spec = &counted
	ctx = storage.WithOrigin(ctx, storage.Origin{
		User: object.Key().String(), Address: address(from), Tool: storage.OriginOf(ctx).Tool,
		Message: fmt.Sprintf("used as %s, %d of %d", who, counted.Used, counted.Uses),
	})
	switch _, err := t.o.Store.Update(ctx, &used); {
	case err == nil:
		return who, nil
	case errors.Is(err, storage.ErrConflict):
		return identity.Identity{}, err
	case errors.Is(err, storage.ErrNotFound):
		return identity.Identity{}, readRefusal(object.Namespace, object.Name, err)
	case errors.Is(err, storage.ErrOutcomeUnknown):
		return identity.Identity{}, &identity.RefusedError{Detail: err.Error(),
			Err: fmt.Errorf("%w: the store did not say whether it counted the use of %s: try again, and if it is used up, make another", identity.ErrUnavailable, object.Key())}
	default:
		return identity.Identity{}, &identity.RefusedError{Detail: err.Error(), Err: fmt.Errorf("%w: the store cannot count the use: try again", identity.ErrUnavailable)}
	}
}

// refusal returns why the token may not be used now, nil if it may.
func (t *Tokens) refusal(object *config.Config, spec *access.JoinToken, from netip.Addr) error {
	why := ""
	switch {
	case !t.o.Now().Before(spec.Expires):
		why = "expired at " + spec.Expires.UTC().Format(time.RFC3339)
	case spec.Used >= spec.Uses:
		why = fmt.Sprintf("is used up: it was good for %s", times(spec.Uses))
	case !addressAllowed(spec.Sources, from):
		why = fmt.Sprintf("may not be used from %s: it is for %s", address(from), strings.Join(spec.Sources, ", "))
	default:
		return nil
	}
	return fmt.Errorf("%w: %s %s: make another", identity.ErrUnproven, object.Key(), why)
}

// address formats an address for people.
func address(from netip.Addr) string {
	if !from.IsValid() {
		return "an unknown address"
	}
	return from.Unmap().String()
}

func times(n int) string {
	if n == 1 {
		return "one use"
	}
	return fmt.Sprintf("%d uses", n)
}
