package authority

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/discovery/identity"
	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/storage/sealing"
	"github.com/portolan-mesh/portolan/storage/secret"
)

// SecretName is the name of the authority's Secret, in the root namespace of the mesh.
const SecretName = "portolan-ca"

// The lifetimes of certificates: Istio's default and maximum, and the shortest that is useful.
const (
	DefaultLife    = 24 * time.Hour
	DefaultMaxLife = 90 * 24 * time.Hour
	ShortestLife   = 5 * time.Second
)

// DefaultRenewExpired is how long servers renew expired certificates unless told otherwise.
const DefaultRenewExpired = 7 * 24 * time.Hour

// Options configure an Authority. All fields are required but for those that say otherwise.
type Options struct {
	// TrustDomain is part of all identities, and RootNamespace is the namespace of the
	// Secret.
	TrustDomain, RootNamespace string
	// Files are the operator's files; nil means that the authority keeps its keys in the
	// Secret.
	Files *Files
	// Store and Sealer keep the Secret.
	Store  storage.ConfigStore
	Sealer *sealing.Sealer
	// Snapshot returns the snapshot of the store, nil before it is read.
	Snapshot func() *cache.Snapshot
	// MaxLife bounds the lifetimes of certificates; 0 means DefaultMaxLife.
	MaxLife time.Duration
	// RenewExpired is how long after its end a certificate can still be renewed; 0 means that
	// it cannot.
	RenewExpired time.Duration
	// Now is the clock; nil means the system's clock.
	Now func() time.Time
	// Logger may be nil; nothing is logged then.
	Logger *slog.Logger
}

// Authority signs certificates. It is safe for concurrent use.
type Authority struct {
	o Options

	mu sync.Mutex
	// written is the Secret as this server last wrote it, until the snapshot has it or a newer
	// one.
	written *config.Config
	// read caches what the last Secret was opened to.
	read openedSecret
	// files holds the last contents of the operator's files, fromFiles the material parsed
	// from them.
	files     map[string][]byte
	fromFiles *material
	fileFault error
}

// openedSecret is the result of opening a Secret with a ring of sealing keys.
type openedSecret struct {
	object   *config.Config
	ring     any // a pointer; another ring has another pointer
	material *material
	err      error
}

// New returns an authority. It fails if the operator's files are faulty. The Secret is created
// at its first use.
func New(o Options) (*Authority, error) {
	if o.MaxLife == 0 {
		o.MaxLife = DefaultMaxLife
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	a := &Authority{o: o}
	if o.Files != nil {
		if err := a.readFiles(); err != nil {
			return nil, err
		}
	}
	return a, nil
}

// key is the key of the Secret.
func (a *Authority) key() config.Key {
	return config.Key{Kind: schema.Secret, Namespace: a.o.RootNamespace, Name: SecretName}
}

// errNone means that the Secret does not exist yet.
var errNone = fmt.Errorf("%w: there is no certificate authority yet: the first certificate makes one, or portolan ca init", storage.ErrNotFound)

// errUnread means that the server has not read the store yet.
var errUnread = fmt.Errorf("%w: the configuration is not read yet", storage.ErrUnavailable)

// current returns the material that signs now.
func (a *Authority) current() (*material, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.o.Files != nil {
		return a.fromFiles, nil
	}
	snapshot := a.o.Snapshot()
	if snapshot == nil && a.written == nil {
		return nil, errUnread
	}
	object := a.written
	if object == nil || versionOf(object) <= snapshot.Revision() {
		object, a.written = snapshot.Stored(a.key()), nil
	}
	if object == nil {
		return nil, errNone
	}
	ring := a.o.Sealer.Keys()
	if a.read.object != object || a.read.ring != any(ring) {
		m, err := a.open(object)
		a.read = openedSecret{object, ring, m, err}
	}
	return a.read.material, a.read.err
}

// versionOf returns the revision at which an object was written, 0 if it has none.
func versionOf(object *config.Config) int64 {
	n, err := strconv.ParseInt(object.ResourceVersion, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// open unseals and parses the Secret.
func (a *Authority) open(object *config.Config) (*material, error) {
	spec, ok := object.Spec.(*secret.Spec)
	if !ok || spec.Type != secret.CertificateAuthority {
		return nil, fmt.Errorf("%w: %s is a secret of another type than %s: delete it", storage.ErrUnavailable, object.Key(), secret.CertificateAuthority)
	}
	entries, err := a.o.Sealer.Open(object)
	if err != nil {
		return nil, fmt.Errorf("%w: the certificate authority cannot be opened: %w: see portolan secret status", storage.ErrUnavailable, err)
	}
	m, err := parse(entries, a.o.Now())
	if err != nil {
		return nil, fmt.Errorf("%w: the certificate authority in %s is damaged: %w", storage.ErrUnavailable, object.Key(), err)
	}
	return m, nil
}

// Ensure creates the first Secret if there is none. If several servers do that at once, one wins
// and all use its keys. A Secret that was there before is not replaced: that is an error.
func (a *Authority) Ensure(ctx context.Context) error {
	_, err := a.ensured(ctx)
	return err
}

// Begin is like Ensure, and also makes a new root in place of one that is gone.
func (a *Authority) Begin(ctx context.Context) error {
	if _, err := a.current(); !errors.Is(err, errNone) {
		return err
	}
	_, err := a.create(ctx)
	return err
}

func (a *Authority) ensured(ctx context.Context) (*material, error) {
	m, err := a.current()
	if !errors.Is(err, errNone) {
		return m, err
	}
	if err := a.checkFirst(ctx); err != nil {
		return nil, err
	}
	return a.create(ctx)
}

// checkFirst fails if the mesh had a root before: under another root namespace, or one that is
// gone from the store. A new root would be trusted by no proxy that has a certificate.
func (a *Authority) checkFirst(ctx context.Context) error {
	const remedy = "a new root would be trusted by nobody who knows the old one: restore a backup, or make a new root with portolan ca init"
	for object := range a.o.Snapshot().List(schema.Secret, "") {
		if object.Key() == a.key() {
			continue // another server has just made it
		}
		if spec, ok := object.Spec.(*secret.Spec); ok && spec.Type == secret.CertificateAuthority {
			return fmt.Errorf("%w: the keys of the certificate authority are in %s and not in %s: set rootNamespace to %s again, as before; %s",
				storage.ErrUnavailable, object.Key(), a.key(), object.Namespace, remedy)
		}
	}
	historian, ok := a.o.Store.(storage.Historian)
	if !ok {
		return nil
	}
	changes, err := historian.History(ctx, a.key(), 1)
	if err != nil {
		return fmt.Errorf("find out whether the mesh had a root: %w", err)
	}
	if len(changes) == 0 {
		return nil
	}
	_, err = a.o.Store.Get(ctx, schema.Secret, SecretName, a.o.RootNamespace)
	if errors.Is(err, storage.ErrNotFound) {
		return fmt.Errorf("%w: the keys of the certificate authority in %s are gone from the store: %s", storage.ErrUnavailable, a.key(), remedy)
	}
	return err // nil if the cache is behind
}

// create creates the Secret with a new root.
func (a *Authority) create(ctx context.Context) (*material, error) {
	m, err := newMaterial(a.o.TrustDomain, DefaultLife, a.o.Now())
	if err != nil {
		return nil, err
	}
	object, err := a.sealed(ctx, m, nil)
	if err != nil {
		return nil, err
	}
	version, err := a.o.Store.Create(asAuthority(ctx, "the first root of the mesh"), object)
	switch {
	case err == nil:
		a.o.Logger.Info("made the root of the mesh's certificate authority", "secret", a.key().String(), "subject", m.cert.Subject.String(), "ends", m.cert.NotAfter)
		object.ResourceVersion = version
	case errors.Is(err, storage.ErrExists): // another server was faster, or the cache is behind
		if object, err = a.o.Store.Get(ctx, schema.Secret, SecretName, a.o.RootNamespace); err != nil {
			return nil, err
		}
	default:
		return nil, err
	}
	a.rememberWritten(object)
	return a.current()
}

// Ready returns why the authority cannot sign; nil if it can. A missing root is no reason.
func (a *Authority) Ready() error {
	if _, err := a.current(); err != nil && !errors.Is(err, errNone) {
		return err
	}
	return nil
}

// sealed returns the Secret with this material, to replace the stored one.
func (a *Authority) sealed(ctx context.Context, m *material, stored *config.Config) (*config.Config, error) {
	entries, err := m.entries()
	if err != nil {
		return nil, err
	}
	object := &config.Config{Meta: config.Meta{GroupVersionKind: schema.Secret, Namespace: a.o.RootNamespace, Name: SecretName}}
	if stored != nil {
		object = stored.Clone()
	}
	object.Spec = &secret.Spec{Type: secret.CertificateAuthority, Data: entries}
	return a.o.Sealer.Seal(ctx, object, stored, false)
}

// rememberWritten remembers a Secret that the snapshot may not have yet.
func (a *Authority) rememberWritten(object *config.Config) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.written == nil || versionOf(a.written) < versionOf(object) {
		a.written = object
	}
}

// asAuthority makes the authority the author of the change in the history, unless a user
// requested it.
func asAuthority(ctx context.Context, why string) context.Context {
	if storage.OriginOf(ctx).User != "" {
		return ctx
	}
	return storage.WithOrigin(ctx, storage.Origin{User: "portolan", Tool: "certificate authority", Message: why})
}

// attempts is how often a change of the Secret is tried while others change it.
const attempts = 5

// change replaces the material by the result of f; a nil result means no change.
func (a *Authority) change(ctx context.Context, why string, f func(*material) (*material, error)) error {
	for attempt := 1; ; attempt++ {
		stored, err := a.o.Store.Get(ctx, schema.Secret, SecretName, a.o.RootNamespace)
		if errors.Is(err, storage.ErrNotFound) {
			return errNone
		}
		if err != nil {
			return err
		}
		m, err := a.open(stored)
		if err != nil {
			return err
		}
		next, err := f(m)
		if err != nil {
			return err
		}
		if next == nil {
			a.rememberWritten(stored)
			return nil
		}
		object, err := a.sealed(ctx, next, stored)
		if err != nil {
			return err
		}
		version, err := a.o.Store.Update(asAuthority(ctx, why), object)
		if errors.Is(err, storage.ErrConflict) && attempt < attempts {
			continue
		}
		if err != nil {
			return err
		}
		object.ResourceVersion = version
		a.rememberWritten(object)
		return nil
	}
}

// Roots returns the roots that everybody trusts. The pool is shared and must not be modified.
func (a *Authority) Roots() (*x509.CertPool, error) {
	m, err := a.current()
	if err != nil {
		return nil, err
	}
	return m.pool, nil
}

// Bundle returns the certificates of Roots in PEM.
func (a *Authority) Bundle() ([]byte, error) {
	m, err := a.current()
	if err != nil {
		return nil, err
	}
	return inPEM(m.roots...), nil
}

// Identity returns an identity of the mesh's trust domain.
func (a *Authority) Identity(namespace, serviceAccount string) (identity.Identity, error) {
	return identity.New(a.o.TrustDomain, namespace, serviceAccount)
}

// soon is how long before the authority expires Degraded begins to warn.
const soon = 30 * 24 * time.Hour

// Degraded returns why the authority cannot sign, or that it expires soon; nil if neither.
func (a *Authority) Degraded() error {
	m, err := a.current()
	switch {
	case errors.Is(err, errNone), errors.Is(err, errUnread):
		return nil
	case err != nil:
		return err
	}
	a.mu.Lock()
	fault := a.fileFault
	a.mu.Unlock()
	now := a.o.Now()
	switch left := m.cert.NotAfter.Sub(now); {
	case left <= 0:
		return fmt.Errorf("the certificate authority ended on %s and signs nothing: %s", m.cert.NotAfter.Format(time.RFC3339), a.remedy())
	case left < soon:
		return fmt.Errorf("the certificate authority ends on %s: %s", m.cert.NotAfter.Format(time.RFC3339), a.remedy())
	case now.Before(m.cert.NotBefore):
		return fmt.Errorf("the certificate authority is not valid before %s: check the clock of this machine", m.cert.NotBefore.Format(time.RFC3339))
	}
	return fault
}

// remedy says what to do about an authority that expires.
func (a *Authority) remedy() string {
	if a.o.Files != nil {
		return "renew the files of --ca-cert and --ca-root"
	}
	return "replace its root with portolan ca rotate start"
}
