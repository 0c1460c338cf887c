package access

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/discovery/access/socket"
	"github.com/portolan-mesh/portolan/discovery/identity"
	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/access"
	"github.com/portolan-mesh/portolan/storage/claim"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/storage/refusal"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// Options configure a Keeper. Snapshot, Schemas and Root are required.
type Options struct {
	// Snapshot returns the newest state of the store, nil before it is read.
	Snapshot func() *cache.Snapshot
	Schemas  schema.Set
	// Root is the root namespace of the mesh, and Domain the DNS suffix of its short names.
	Root, Domain string
	// AnonymousLoopback treats callers from this machine as administrators, even when there
	// are users.
	AnonymousLoopback bool
	// Bearers identify who sends a bearer token that is not a token of a User. The keeper asks
	// them in order until one knows.
	Bearers []Bearer
	// Revoked returns why the certificate of a workload is revoked, nil if it is not. A nil
	// Revoked accepts every certificate that TLS has verified.
	Revoked func(identity.Identity, *x509.Certificate) error
	// Crossings returns, for each operation of a batch, the hosts of other namespaces for
	// which its object speaks without their consent. A nil Crossings lets everybody speak for
	// every host.
	Crossings func([]storage.Op) ([][]claim.Crossing, error)
	// Weakens returns the fields by which an object opens what policies close. Whoever writes such
	// an object needs the right to access.PatchSecurity. A nil Weakens demands that of nobody.
	Weakens func(object *config.Config) []*schema.FieldError
	// StoreFault returns why the store cannot be read, nil if it can. StoreFault may be nil.
	StoreFault func() error
	// Now is the clock; nil means the system's clock.
	Now func() time.Time
}

// Bearer identifies callers by another sort of bearer token, such as a JWT.
type Bearer interface {
	// Bear returns the identity of the token's bearer. The error says nothing that helps a
	// guesser.
	Bear(ctx context.Context, token string) (Identity, error)
}

// TokenPrefix starts every token of a user.
const TokenPrefix = "put_"

// Keeper authenticates and authorizes the requests to a config API. It follows the store
// without being told of changes, and is safe for concurrent use.
type Keeper struct {
	o Options

	mu     sync.Mutex // guards the fields below
	at     *cache.Snapshot
	policy *policy
}

// NewKeeper returns a keeper.
func NewKeeper(o Options) *Keeper {
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Keeper{o: o}
}

// current returns the policy of the newest snapshot, nil before the first. The cost follows
// what has changed since the last call.
func (k *Keeper) current() *policy {
	snapshot := k.o.Snapshot()
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case snapshot == nil || snapshot == k.at:
		return k.policy
	case k.at != nil && snapshot.Epoch() == k.at.Epoch() && snapshot.Revision() < k.at.Revision():
		return k.policy // another goroutine has already used a newer one
	case k.policy == nil || policyChanged(k.at, snapshot):
		k.policy = newPolicy(objectsOf(snapshot), k.o.Root, k.o.Schemas)
	}
	k.at = snapshot
	return k.policy
}

// policyChanged says whether two snapshots differ in users, roles, bindings, token issuers or
// revoked identities.
func policyChanged(from, to *cache.Snapshot) bool {
	for change := range pmap.Diff(from.Configs(), to.Configs()) {
		object := change.New
		if object == nil {
			object = change.Old
		}
		if kind := object.GroupVersionKind; definesPolicy(kind) || kind == schema.TokenIssuer || kind == schema.RevokedIdentity {
			return true
		}
	}
	return false
}

// Root returns the root namespace of the mesh, where the users are.
func (k *Keeper) Root() string { return k.o.Root }

// Schemas returns the kinds that rules can name.
func (k *Keeper) Schemas() schema.Set { return k.o.Schemas }

// Now returns the time by the clock of the keeper.
func (k *Keeper) Now() time.Time { return k.o.Now() }

// Plural returns the plural name of a kind, which may be given by any of its names.
func (k *Keeper) Plural(kind string) string { return plural(kind, k.o.Schemas) }

// GrantsOf returns the rules that an identity has.
func (k *Keeper) GrantsOf(who Identity) []Grant {
	if p := k.current(); p != nil {
		return p.grantsOf(who)
	}
	return nil
}

// CheckFirst returns why operations that make a user, first of all, may not be done: without
// users, the first one must be an administrator.
func (k *Keeper) CheckFirst(who Identity, ops []storage.Op) error {
	if before := k.current(); who.Unproved && before != nil && len(before.users) == 0 && !administers(before, ops) {
		return refusal.Invalid("roles: the first user must be an administrator: from then on nobody is let in without a credential, and only an administrator can make the others (--role admin)")
	}
	return nil
}

// administers says whether the user whom these operations make may do everything.
func administers(before *policy, ops []storage.Op) bool {
	next := objects{}
	for key, object := range before.objects {
		next[key] = object
	}
	for _, op := range ops {
		next[op.Target()] = op.Config
	}
	after := newPolicy(next, before.root, before.schemas)
	user := ops[0].Config
	who := Identity{User: user.Name, Groups: append(slices.Clone(user.Spec.(*access.User).Groups), access.Authenticated)}
	return after.firstMissing(who, []Grant{everything}) == ""
}

// HasUsers says whether the store has users, or may have some that the server has not read.
func (k *Keeper) HasUsers() bool {
	p := k.current()
	return p == nil || len(p.users) > 0
}

// Rights returns a value that differs, by ==, from an earlier one if an answer may have changed.
func (k *Keeper) Rights() any { return k.current() }

// notRead returns the error for a caller who comes before the server has read the users.
func (k *Keeper) notRead() error {
	const text = "the server has not read yet who may come in: try again in a moment"
	if k.o.StoreFault != nil {
		if err := k.o.StoreFault(); err != nil {
			return refusal.Unavailable(text + ": " + err.Error())
		}
	}
	return refusal.Starting(text)
}

// unread is the name of a caller from this machine before the server has read its users. The
// caller may look at the state of the server and its metrics. No user can have this name.
const unread = "(unknown)"

// errToken is the same whatever makes a token invalid, so that it helps no guesser.
var errToken = errors.New("the token is not valid: it is unknown, expired or revoked, or its user is disabled: log in again (portolan login), or have another made (portolan user token add)")

// Authenticate finds out who sends a request.
func (k *Keeper) Authenticate(r *http.Request) (Identity, error) {
	if values := r.Header.Values("Authorization"); len(values) > 0 {
		scheme, token, ok := strings.Cut(values[0], " ")
		if len(values) > 1 || !ok || !strings.EqualFold(scheme, "Bearer") || token == "" {
			return Identity{}, errors.New("the Authorization header is not one Bearer token: this server knows no other scheme")
		}
		return k.byToken(r.Context(), strings.TrimSpace(token))
	}
	if r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
		return k.byCertificate(r.TLS.VerifiedChains[0][0])
	}
	if socket.OverSocket(r) {
		return localIdentity(r)
	}
	p := k.current()
	switch {
	case !socket.FromThisMachine(r):
		return Identity{}, errors.New("nothing says who you are: log in (portolan login), or give a token (--token, or PORTOLAN_TOKEN) or a client certificate")
	case k.o.AnonymousLoopback || p != nil && len(p.users) == 0:
		return Identity{User: access.LocalUser, Unproved: true}, nil
	case p == nil:
		return Identity{User: unread, Unproved: true}, nil
	}
	return Identity{}, errors.New("this server has users, and nothing says who you are: log in (portolan login), or give a token (--token, --token-file or PORTOLAN_TOKEN) or a client certificate; " +
		"the user who runs the server is let in over its socket, and makes tokens: portolan user token add NAME")
}

// localIdentity identifies a caller over the socket, who must be the user of the server, or root.
func localIdentity(r *http.Request) (Identity, error) {
	peer, told := socket.PeerOf(r.Context())
	switch {
	case told && (peer.UID == os.Geteuid() || peer.UID == 0), !told && !socket.CanTellPeers: // on systems that cannot tell, only the mode of the socket protects it
		return Identity{User: access.LocalUser}, nil
	case !told:
		return Identity{}, errors.New("the system does not say who is at the other end of the socket")
	}
	return Identity{}, fmt.Errorf("the socket is for the user who runs the server, and you are user %d: give a token", peer.UID)
}

func (k *Keeper) byToken(ctx context.Context, token string) (Identity, error) {
	if !strings.HasPrefix(token, TokenPrefix) {
		for _, b := range k.o.Bearers {
			if who, err := b.Bear(ctx, token); err == nil {
				return k.completeIdentity(who)
			}
		}
		return Identity{}, errToken
	}
	p := k.current()
	if p == nil {
		return Identity{}, k.notRead()
	}
	found, ok := p.byToken(token, k.o.Now())
	if !ok {
		return Identity{}, errToken
	}
	return k.completeIdentity(Identity{User: found.user, Until: found.token.Expires})
}

// byCertificate identifies the holder of a verified certificate: a workload by its SPIFFE
// identity, else a user by the common name, with the organizations as groups.
func (k *Keeper) byCertificate(c *x509.Certificate) (Identity, error) {
	if len(c.URIs) > 0 {
		workload, err := identity.OfCertificate(c)
		if err != nil {
			return Identity{}, fmt.Errorf("the client certificate is not of a workload: %w", err)
		}
		if k.o.Revoked != nil {
			if err := k.o.Revoked(workload, c); err != nil {
				return Identity{}, err
			}
		}
		return k.Workload(workload, c.NotAfter)
	}
	if c.Subject.CommonName == "" {
		return Identity{}, errors.New("the client certificate has neither a SPIFFE identity nor a common name: it is nobody's")
	}
	return k.completeIdentity(Identity{User: c.Subject.CommonName, Groups: c.Subject.Organization, Until: c.NotAfter})
}

// Workload returns the user that stands for a workload. until is when the proof of its
// identity expires.
func (k *Keeper) Workload(who identity.Identity, until time.Time) (Identity, error) {
	return k.completeIdentity(Identity{User: who.String(), Groups: []string{access.Workloads}, Until: until})
}

// MayIssueFor returns why a caller may not make a credential for a workload, nil if the caller
// may. It refuses if the credential would give rights that the caller does not have.
func (k *Keeper) MayIssueFor(who Identity, workload identity.Identity) error {
	p := k.current()
	if p == nil {
		return k.notRead()
	}
	name := workload.String()
	groups := append(slices.Clone(p.groups(name)), access.Workloads, access.Authenticated)
	if missing := p.firstMissing(who, p.grantsOf(Identity{User: name, Groups: groups})); missing != "" {
		return refusal.Forbidden(fmt.Sprintf("user %q may not make a token of %s: whoever uses it would have the right to %s, which the user does not have", who.User, name, missing))
	}
	return nil
}

// completeIdentity completes an authenticated identity with what the store says of the user.
func (k *Keeper) completeIdentity(who Identity) (Identity, error) {
	p := k.current()
	switch {
	case p == nil:
		return Identity{}, k.notRead()
	case who.User == access.LocalUser || who.User == "":
		return Identity{}, fmt.Errorf("the credential is of %q, which is nobody's name", who.User)
	case p.disabled(who.User):
		return Identity{}, errToken
	case !who.Until.IsZero() && !k.o.Now().Before(who.Until):
		return Identity{}, errToken
	}
	who.Groups = slices.Concat(who.Groups, p.groups(who.User), []string{access.Authenticated})
	if !strings.HasPrefix(who.User, "spiffe://") {
		who.Groups = slices.DeleteFunc(who.Groups, func(g string) bool { return g == access.Workloads })
	}
	return who, nil
}

// Authorize returns why an identity may not do what a request wants, nil if it may.
func (k *Keeper) Authorize(_ context.Context, who Identity, a Request) error {
	wanted := demands(a, k.o.Root)
	want := wanted[0]
	if who.User == access.LocalUser || want.open {
		return nil
	}
	p := k.current()
	switch {
	case who.User == unread && a.Resource == "" && want.verb == access.Get:
		return nil
	case who.User == unread, p == nil:
		// Whoever came before the users were read is nobody yet, also if they are read now.
		return k.notRead()
	}
	for _, want := range wanted {
		if !p.permits(who, want) {
			return fmt.Errorf("user %q may not %s: no role that is bound to the user or to a group of the user permits it (portolan auth whoami)", who.User, want)
		}
	}
	return nil
}

// May says whether an identity may do something with objects of a kind. kind is a singular or
// plural name.
func (k *Keeper) May(who Identity, verb, kind, namespace, name string) bool {
	p := k.current()
	return p != nil && p.permits(who, action{verb: verb, kind: plural(kind, k.o.Schemas), namespace: namespace, name: name})
}

// Grants returns, for each operation, why the identity may not do it because of its content: it
// gives somebody rights that the identity does not have, speaks for hosts that are not for the
// identity, or opens what policies close. It returns nil if no operation concerns any of these. It
// judges the operations together, as one change. It replaces each object that speaks for hosts by one
// whose claim.RightsAnnotation says what it has found.
func (k *Keeper) Grants(_ context.Context, who Identity, ops []storage.Op) []error {
	rights := slices.ContainsFunc(ops, func(op storage.Op) bool { return givesRights(op.Target().Kind) })
	hosts := slices.ContainsFunc(ops, func(op storage.Op) bool { return k.speaks(op.Target().Kind) })
	weakenings := k.weakenings(ops)
	if !rights && !hosts && weakenings == nil {
		return nil
	}
	out := make([]error, len(ops))
	before := k.current()
	if before == nil && (rights || who.User != access.LocalUser) {
		for i := range out {
			out[i] = k.notRead()
		}
		return out
	}
	if rights {
		k.checkRights(who, ops, before, out)
	}
	if hosts {
		k.checkHosts(who, ops, before, out)
	}
	k.checkWeakenings(who, ops, weakenings, before, out)
	return out
}

// checkRights sets, for each operation, why the caller may not do it because of the rights that
// it gives.
func (k *Keeper) checkRights(who Identity, ops []storage.Op, before *policy, out []error) {
	next := objects{}
	for key, object := range before.objects {
		next[key] = object
	}
	for _, op := range ops {
		switch key := op.Target(); {
		case !definesPolicy(key.Kind):
		case op.Config == nil:
			delete(next, key)
		default:
			next[key] = op.Config
		}
	}
	after := newPolicy(next, k.o.Root, k.o.Schemas)
	for i, op := range ops {
		if givesRights(op.Target().Kind) {
			out[i] = k.checkEscalation(who, op, before, after)
		}
	}
}

// givesRights says whether an object of this kind can give somebody rights.
func givesRights(kind config.GroupVersionKind) bool {
	return definesPolicy(kind) || kind == schema.TokenIssuer
}

// checkEscalation returns why a caller may not do an operation because of the rights that it
// gives, nil if the caller may.
func (k *Keeper) checkEscalation(who Identity, op storage.Op, before, after *policy) error {
	key := op.Target()
	if op.Config == nil {
		if len(before.users) > 0 && len(after.users) == 0 && before.firstMissing(who, []Grant{everything}) != "" {
			return errors.New("it is the last user, and without users everybody on the machine of the server may do everything: an administrator may delete it")
		}
		return nil
	}
	var given []Grant
	switch spec := op.Config.Spec.(type) {
	case *access.Role:
		for _, rule := range after.normal(spec.Rules) {
			given = append(given, Grant{Rule: rule, Scope: after.scope(key.Namespace)})
		}
	case *access.RoleBinding:
		var ok bool
		if given, ok = after.granted(key, spec); !ok {
			return refusal.Field("spec.role", "%q is neither a built-in role nor a Role of namespace %s or %s: make it first, or in the same batch", spec.Role, k.o.Root, key.Namespace)
		}
	case *access.User:
		if key.Namespace != k.o.Root {
			return refusal.Field("metadata.namespace", "is %q, and users are in the root namespace of the mesh, %s", key.Namespace, k.o.Root)
		}
		given = after.grantsOf(Identity{User: key.Name, Groups: append(slices.Clone(spec.Groups), access.Authenticated)})
	case *access.TokenIssuer: // an issuer can make tokens for any user
		given = []Grant{everything}
	}
	if missing := before.firstMissing(who, given); missing != "" {
		return fmt.Errorf("user %q may not give away the right to %s, which the user does not have", who.User, missing)
	}
	return nil
}

// Object returns the stored user with a name, nil if there is none.
func (k *Keeper) Object(name string) *config.Config {
	p := k.current()
	if p == nil {
		return nil
	}
	return p.objects[config.Key{Kind: schema.User, Namespace: k.o.Root, Name: name}]
}
