package join

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
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

// MemberPrefix begins every token by which a server joins the store.
const MemberPrefix = "pst_"

// MaxMemberTTL bounds how long such a token can be used: whoever has it gets the whole store.
const MaxMemberTTL = 24 * time.Hour

// ErrNoMember is the refusal of a member token that belongs to no object.
var ErrNoMember = fmt.Errorf("%w: no such token: it is mistyped, was revoked, or expired long ago: make one with portolan store member invite", identity.ErrUnproven)

// An Invitation describes the member that may join.
type Invitation struct {
	// Namespace is the namespace of the token's object: the root namespace of the mesh.
	Namespace string
	Member    access.StoreMember
	// TTL and Sources are as in Request.
	TTL     time.Duration
	Sources []string
}

// Invite makes a token that is good once, for one machine. It returns errors of package
// storage, and ErrInvalid for a faulty invitation.
func (t *Tokens) Invite(ctx context.Context, i Invitation) (*Made, error) {
	if ttl := cmp.Or(i.TTL, DefaultTTL); ttl > MaxMemberTTL {
		return nil, fmt.Errorf("%w: ttl %s: a token of a member lasts up to %s", storage.ErrInvalid, ttl, MaxMemberTTL)
	}
	// An invitation has no service account: "none" fills the field, so that spec checks the
	// rest as for any token.
	spec, err := t.spec(Request{Namespace: i.Namespace, ServiceAccount: "none", TTL: i.TTL, Sources: i.Sources})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", storage.ErrInvalid, err)
	}
	spec.ServiceAccount, spec.Member = "", &i.Member
	token, name := newToken(MemberPrefix, i.Namespace)
	spec.Hash = hash(token)
	object := &config.Config{Meta: config.Meta{GroupVersionKind: schema.JoinToken, Namespace: i.Namespace, Name: name}, Spec: spec}
	revision, err := t.o.Store.Create(ctx, object)
	if err != nil {
		return nil, err
	}
	return &Made{Token: token, Namespace: i.Namespace, Name: name, Spec: spec, Revision: revision}, nil
}

// Admit uses up a member token for one machine and returns the member. key is the SHA-256 of
// the machine's public key. The same machine may use the token again until it expires, in case
// an answer was lost; no other machine may.
func (t *Tokens) Admit(ctx context.Context, token string, key []byte, from netip.Addr) (*access.StoreMember, error) {
	token, _ = invitation.Unpin(token)
	rest, ok := strings.CutPrefix(token, MemberPrefix)
	if !ok {
		return nil, fmt.Errorf("%w: a server joins the store by a token of portolan store member invite, and by no other", identity.ErrForeign)
	}
	if len(key) != sha256.Size {
		return nil, errors.New("join: the key of a machine is no SHA-256")
	}
	namespace, name, ok := Parse(Prefix + rest)
	if !ok {
		return nil, &identity.RefusedError{Err: ErrNoMember, Detail: "it does not have the form of one"}
	}
	sum := hash(token)
	wait := retry.NewFair(firstWait, longestWait)
	for {
		object, err := t.o.Store.Get(ctx, schema.JoinToken, name, namespace)
		if err != nil {
			return nil, noMember(namespace, name, err)
		}
		member, err := t.admit(ctx, object, sum, key, from)
		if !errors.Is(err, storage.ErrConflict) {
			return member, err
		}
		if err := wait.Wait(ctx); err != nil {
			return nil, fmt.Errorf("%w: others use the same token: %w", identity.ErrUnavailable, err)
		}
	}
}

// KnowsMember is like Knows, for a member token and the machine with this key.
func (t *Tokens) KnowsMember(token string, key []byte, from netip.Addr) bool {
	token, _ = invitation.Unpin(token)
	rest, ok := strings.CutPrefix(token, MemberPrefix)
	if !ok {
		return false
	}
	object := t.tokenObject(Prefix + rest)
	if object == nil {
		return false
	}
	_, _, err := t.checkMember(object, hash(token), key, from)
	return err == nil
}

// noMember returns the refusal when the object of a token could not be read.
func noMember(namespace, name string, err error) error {
	if errors.Is(err, storage.ErrNotFound) {
		return &identity.RefusedError{Err: ErrNoMember, Detail: fmt.Sprintf("there is no jointoken/%s/%s", namespace, name)}
	}
	return &identity.RefusedError{Err: fmt.Errorf("%w: the store cannot be read: try again", identity.ErrUnavailable), Detail: err.Error()}
}

// again is true if the same machine has used the token before.
func (t *Tokens) checkMember(object *config.Config, sum, key []byte, from netip.Addr) (spec *access.JoinToken, again bool, err error) {
	spec, ok := object.Spec.(*access.JoinToken)
	if !ok || spec.Member == nil || subtle.ConstantTimeCompare(sum, spec.Hash) != 1 {
		return nil, false, &identity.RefusedError{Err: ErrNoMember, Detail: fmt.Sprintf("%s has another secret", object.Key())}
	}
	again = spec.Used > 0 && bytes.Equal(key, spec.Member.Key)
	why := ""
	switch {
	case !t.o.Now().Before(spec.Expires):
		why = "expired at " + spec.Expires.UTC().Format(time.RFC3339)
	case spec.Used > 0 && !again:
		why = "was used by another machine: its history says from where, and if you do not know that machine, remove the member"
	case !addressAllowed(spec.Sources, from):
		why = fmt.Sprintf("may not be used from %s: it is for %s", address(from), strings.Join(spec.Sources, ", "))
	}
	if why != "" {
		return nil, false, fmt.Errorf("%w: %s %s: make another with portolan store member invite", identity.ErrUnproven, object.Key(), why)
	}
	return spec, again, nil
}

// admit checks a token against its object and writes who uses it. The error is a
// storage.ErrConflict if the object has changed since.
func (t *Tokens) admit(ctx context.Context, object *config.Config, sum, key []byte, from netip.Addr) (*access.StoreMember, error) {
	spec, again, err := t.checkMember(object, sum, key, from)
	if err != nil {
		return nil, err
	}
	if again {
		return spec.Member, nil
	}
	used, counted, member := *object, *spec, *spec.Member
	member.Key, counted.Used, counted.Member = key, 1, &member
	used.Spec = &counted
	ctx = storage.WithOrigin(ctx, storage.Origin{
		User: object.Key().String(), Address: address(from), Tool: storage.OriginOf(ctx).Tool,
		Message: fmt.Sprintf("used as member %s of the store", member.Name),
	})
	switch _, err := t.o.Store.Update(ctx, &used); {
	case err == nil:
		return &member, nil
	case errors.Is(err, storage.ErrConflict):
		return nil, err
	case errors.Is(err, storage.ErrNotFound):
		return nil, noMember(object.Namespace, object.Name, err)
	default: // if the answer was lost, the same machine may try again
		return nil, &identity.RefusedError{Detail: err.Error(), Err: fmt.Errorf("%w: the store cannot count the use: try again", identity.ErrUnavailable)}
	}
}
