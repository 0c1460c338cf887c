package storage

import (
	"context"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/health"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// The classes of errors. Errors returned by a store wrap one of these; test with
// errors.Is.
var (
	// ErrNotFound: no object has that key.
	ErrNotFound = errors.New("not found")
	// ErrExists: Create met an object of that key.
	ErrExists = errors.New("already exists")
	// ErrConflict: the stored resource version is not the one expected. The
	// error is a *ConflictError.
	ErrConflict = errors.New("conflict")
	// ErrInvalid: the object may not be stored.
	ErrInvalid = errors.New("invalid")
	// ErrTooLarge: the object or the batch is over a limit of the store.
	// Nothing was written.
	ErrTooLarge = errors.New("too large")
	// ErrCompacted: the requested version is older than the kept history.
	ErrCompacted = errors.New("compacted")
	// ErrReadOnly: the store accepts no mutations.
	ErrReadOnly = errors.New("read only")
	// ErrUnavailable: the store cannot be reached, and nothing was written.
	ErrUnavailable = errors.New("unavailable")
	// ErrOutcomeUnknown: the mutation may or may not have landed. Read again
	// before you repeat it.
	ErrOutcomeUnknown = errors.New("outcome unknown")
)

// ConflictError says which resource version was expected and which is stored;
// Actual is empty where there is no such object. It wraps ErrConflict.
type ConflictError struct {
	Key              config.Key
	Expected, Actual string
}

// Error implements error.
func (e *ConflictError) Error() string {
	if e.Expected == Absent {
		return fmt.Sprintf("conflict: %s exists (you had version %s, which is none, the store has %s)", e.Key, e.Expected, e.Actual)
	}
	if e.Actual == "" {
		return fmt.Sprintf("conflict: %s is gone (you had version %s)", e.Key, e.Expected)
	}
	return fmt.Sprintf("conflict: %s changed (you had version %s, the store has %s)", e.Key, e.Expected, e.Actual)
}

// Unwrap makes errors.Is(err, ErrConflict) hold.
func (e *ConflictError) Unwrap() error { return ErrConflict }

// SourceError says that an object comes from a source that accepts no mutations. It wraps
// ErrReadOnly.
type SourceError struct {
	Verb   Verb
	Key    config.Key
	Source string
	// Place is the object's place in the source, such as its file; empty if unknown.
	Place string
	// Else is advice for a user who cannot change the object there; it may be empty.
	Else string
}

// Error implements error.
func (e *SourceError) Error() string {
	place := ""
	if e.Place != "" {
		place = ", " + e.Place
	}
	text := fmt.Sprintf("%s %s: read only: %s", e.Verb, e.Key, ChangeInSource(e.Source+place))
	if e.Else != "" {
		text += "; " + e.Else
	}
	return text
}

// ChangeInSource says why an object cannot be changed here. source names where it comes from, with its place
// there.
func ChangeInSource(source string) string {
	return "the object comes from the source " + source + ": change it there"
}

// Unwrap makes errors.Is(err, ErrReadOnly) hold.
func (e *SourceError) Unwrap() error { return ErrReadOnly }

// OpError is the error of the operation at Index of a batch.
type OpError struct {
	Index int
	Err   error
}

// Error implements error.
func (e *OpError) Error() string { return e.Err.Error() }

// Unwrap returns the error of the operation.
func (e *OpError) Unwrap() error { return e.Err }

// ConfigStore keeps configuration objects. Objects that it returns are shared: callers
// never modify them. It neither keeps nor changes the objects that callers pass.
//
// Kinds may be named in any served version; objects come back under the
// canonical one. Mutations are asynchronous: a cache fed by the store may show
// them later. The resource version is opaque; equality is the only comparison.
type ConfigStore interface {
	// Schemas are the kinds served. Others are refused with ErrInvalid.
	Schemas() schema.Set
	// Get returns one object or ErrNotFound. An etcd store makes a linearizable read,
	// and a cache reads its newest snapshot.
	Get(ctx context.Context, kind config.GroupVersionKind, name, namespace string) (*config.Config, error)
	// List returns the objects of a kind, of one namespace or of all (""), in
	// the order of their namespaces, then names, all as of one version.
	List(ctx context.Context, kind config.GroupVersionKind, namespace string) ([]*config.Config, error)
	// Create stores a new object and returns its resource version. The error is ErrExists
	// if the key is taken, and ErrInvalid if object carries a resource version.
	Create(ctx context.Context, object *config.Config) (revision string, err error)
	// Update changes an object that exists (else ErrNotFound) and returns its new
	// resource version. If object carries a resource version that is not the stored one,
	// nothing changes, and the error is a *ConflictError. Without one the last write
	// wins. An update that changes nothing writes nothing and returns the present
	// version.
	Update(ctx context.Context, object *config.Config) (revision string, err error)
	// Delete removes an object (else ErrNotFound); a resourceVersion that is not
	// empty must be the stored one (*ConflictError). It returns the revision of
	// the store at which the object went.
	Delete(ctx context.Context, kind config.GroupVersionKind, name, namespace, resourceVersion string) (revision string, err error)
	// Version identifies the state of the whole store, as this client last saw it.
	Version() string
	// GetResourceAtVersion returns the resource version of an object when the store was
	// at version: ErrNotFound if the object did not exist then, ErrCompacted if the
	// ledger does not reach back so far.
	GetResourceAtVersion(ctx context.Context, version string, key config.Key) (resourceVersion string, err error)
	// GetLedger returns the ledger that answers GetResourceAtVersion.
	GetLedger() Ledger
	// SetLedger replaces the ledger. A store whose ledger is its own history (etcd) returns
	// an error.
	SetLedger(Ledger) error
}

// Ledger answers which resource version an object had at a version of the
// store.
type Ledger interface {
	// ResourceVersionAt does what GetResourceAtVersion promises.
	ResourceVersionAt(ctx context.Context, version string, key config.Key) (string, error)
}

// Verb is the action of an Op.
type Verb int

// The verbs of a batch.
const (
	Create Verb = iota + 1 // must not exist
	Update                 // must exist
	Put                    // either
	Delete                 // must exist
	// Restore is a Put of a past object. If it creates the object, the object gets the
	// creation time of Config, in whole seconds and not in the future. If Config has none,
	// or the object exists, it is like Put.
	Restore
)

// Absent is the resource version of an object that does not exist. As the condition of a
// Put or a Restore it requires that the object does not exist.
const Absent = "0"

// String implements fmt.Stringer.
func (v Verb) String() string {
	switch v {
	case Create:
		return "create"
	case Update:
		return "update"
	case Put:
		return "apply"
	case Delete:
		return "delete"
	case Restore:
		return "restore"
	}
	return fmt.Sprintf("verb %d", int(v))
}

// Op is one operation of a batch. Delete names the object by Key, and may have a
// ResourceVersion as its precondition. The other verbs carry Config; its resource
// version, if any, is the precondition.
type Op struct {
	Verb            Verb
	Config          *config.Config
	Key             config.Key
	ResourceVersion string
	// Served says that the precondition is the version of the object as it is served
	// with its health: the greater of both versions, if the store is a HealthKeeper.
	Served bool
	// KeepSpec forbids the operation to create the object or to change its spec: a store
	// returns it as the error. If nil, the operation may do both.
	KeepSpec error
	// Lease puts the object under a lease of the store, which must be a Leaser; 0 leaves it as it
	// is, and OffLease takes it from its lease. An operation with a lease writes the object even
	// if nothing else changes. It is ErrInvalid for Delete and for kinds that can have no lease,
	// and ErrNotFound if the lease has ended.
	Lease LeaseID
	// Managed returns the managed fields that an object gets by the operation, from the stored
	// object, which has some, and the one of the operation. Its error is that of the operation.
	// If nil, the object keeps those it has, unless Config has others.
	Managed func(stored, written *config.Config) ([]metav1.ManagedFieldsEntry, error)
	// Health is the report of the health of a WorkloadEntry that is restored. If the operation creates
	// the object, a HealthKeeper stores the report with it, with the times that SetHealth would
	// give it. An object that exists keeps its health. It is ErrInvalid for other verbs and kinds,
	// and with a lease.
	Health *health.Report
}

// Target returns the key of the operation's object.
func (o Op) Target() config.Key {
	if o.Config != nil {
		return o.Config.Key()
	}
	return o.Key
}

// Condition returns the resource version that the stored object must have,
// empty for any.
func (o Op) Condition() string {
	if o.Config != nil {
		return o.Config.ResourceVersion
	}
	return o.ResourceVersion
}

// Outcome is the result of an operation for its object.
type Outcome string

// The outcomes of an operation.
const (
	Created    Outcome = "created"
	Configured Outcome = "configured"
	Unchanged  Outcome = "unchanged"
	Deleted    Outcome = "deleted"
)

// Result is the result of one operation. ResourceVersion is the object's version
// afterwards, and for a deleted object the revision of its deletion.
type Result struct {
	Key             config.Key
	Outcome         Outcome
	ResourceVersion string
}

// Batcher is a store that applies several operations as one change.
type Batcher interface {
	// Apply does all of ops or nothing, as one revision that every reader sees whole.
	// Results are in the order of ops. Objects that would not change are compared, not
	// written. A batch that changes nothing writes nothing and returns the revision that
	// it read. Two operations on one key are ErrInvalid. If operations have faults the
	// error is a *multierror.Error of *OpError that names them all.
	Apply(ctx context.Context, ops []Op) (revision string, results []Result, err error)
}
