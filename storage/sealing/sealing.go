package sealing

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"

	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/seal"
	"github.com/portolan-mesh/portolan/storage/secret"
)

// Record says which key seals the secrets of a store, for all its servers.
type Record struct {
	// Key is the id of the sealing key, empty for none yet.
	Key string `json:"key"`
	// Check is a known text that the key has sealed.
	Check seal.Box `json:"check"`

	// Revision is the revision at which the store has the record; 0 for none.
	Revision int64 `json:"-"`
}

// Records keeps the Record of a store.
type Records interface {
	// SealingRecord returns the record, the zero one if there is none.
	SealingRecord(context.Context) (Record, error)
	// SetSealingRecord replaces from by to. It returns false if the stored record is no
	// longer from.
	SetSealingRecord(ctx context.Context, from, to Record) (bool, error)
}

// Sealer seals the secrets of one server, and opens them. Its ring is in a file, which it
// makes when the store gets its first secret. Several goroutines may use it.
type Sealer struct {
	file    string // empty for none
	records Records

	mu   sync.Mutex // one change of the file at a time
	ring atomic.Pointer[seal.Ring]
	// fault says why the file could not be read; nil if it could.
	fault error
	// changed is called after each change of the ring.
	changed func()
}

// New reads the ring of a server. A file that cannot be read is no error here: the server
// runs without secrets, and Ready says why. The file name is empty for a server without
// sealing keys.
func New(file string, records Records) *Sealer {
	s := &Sealer{file: file, records: records, changed: func() {}}
	ring := seal.Ring{}
	if file != "" {
		var err error
		if ring, err = seal.Read(file); err != nil && !seal.IsMissing(err) {
			s.fault = fmt.Errorf("the sealing keys cannot be read: %w", err)
		}
	}
	s.ring.Store(&ring)
	return s
}

// File returns the file of the ring, empty for none.
func (s *Sealer) File() string { return s.file }

// Ring returns the keys that the server has.
func (s *Sealer) Ring() seal.Ring { return *s.ring.Load() }

// Keys is like Ring, but returns a pointer that changes whenever the ring does.
func (s *Sealer) Keys() *seal.Ring { return s.ring.Load() }

// OnChange makes the sealer call f after each change of its ring. Call it once at most,
// before the sealer is used.
func (s *Sealer) OnChange(f func()) { s.changed = f }

// Ready returns why the file of the ring cannot be used; nil if it can, or is not made
// yet.
func (s *Sealer) Ready() error { return s.fault }

// Ensure makes the first key of a store that has none. For any other store it returns an
// error if the server lacks the key that seals.
func (s *Sealer) Ensure(ctx context.Context) error {
	_, err := s.current(ctx, false)
	return err
}

// checkText is the text that Record.Check holds, sealed under checkContext.
var checkText, checkContext = []byte("portolan"), []byte("portolan sealing check")

// current returns the id of the key that seals. If the store has none, it makes one, except
// in a trial.
func (s *Sealer) current(ctx context.Context, trial bool) (string, error) {
	if s.fault != nil {
		return "", fmt.Errorf("%w: %w", storage.ErrUnavailable, s.fault)
	}
	record, err := s.records.SealingRecord(ctx)
	if err != nil {
		return "", err
	}
	if record.Key == "" && trial {
		return "", s.mayBegin()
	}
	if record.Key == "" {
		if record, err = s.begin(ctx, record); err != nil {
			return "", err
		}
	}
	return record.Key, s.holds(record)
}

// holds returns an error if the server lacks the key of a record.
func (s *Sealer) holds(record Record) error {
	text, err := s.Ring().Open(record.Check, checkContext)
	var unknown *seal.UnknownKeyError
	switch {
	case errors.As(err, &unknown):
		return fmt.Errorf("%w: this server does not have sealing key %s, which seals the secrets of the store: have one that does export it (portolan secret key export), and import it here (portolan secret key import)", storage.ErrUnavailable, record.Key)
	case err != nil || !bytes.Equal(text, checkText):
		return fmt.Errorf("%w: sealing key %s of this server is not the one of the store: the record of the store is damaged", storage.ErrUnavailable, record.Key)
	}
	return nil
}

// begin makes the first key of a store, unless another server is faster.
func (s *Sealer) begin(ctx context.Context, none Record) (Record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ring := s.Ring()
	ids := ring.IDs()
	if len(ids) == 0 {
		if err := s.mayBegin(); err != nil {
			return Record{}, err
		}
		ring, _ = ring.WithNew()
		if err := s.keep(ring); err != nil {
			return Record{}, err
		}
		ids = ring.IDs()
	}
	return s.record(ctx, none, ids[len(ids)-1])
}

// mayBegin returns an error if the server cannot make a first key.
func (s *Sealer) mayBegin() error {
	if s.file == "" {
		return fmt.Errorf("%w: this server has no sealing key, and stores no secrets without: start it with --sealing-key FILE", storage.ErrUnavailable)
	}
	return nil
}

// keep writes the ring to its file.
func (s *Sealer) keep(ring seal.Ring) error {
	if s.file == "" {
		return fmt.Errorf("%w: this server has no file for sealing keys: start it with --sealing-key FILE", storage.ErrInvalid)
	}
	if s.fault != nil { // the file may have keys that would be lost
		return fmt.Errorf("%w: %w: mend the file, and start the server again", storage.ErrUnavailable, s.fault)
	}
	if err := ring.Write(s.file); err != nil {
		return fmt.Errorf("%w: write the sealing keys: %w", storage.ErrUnavailable, err)
	}
	s.ring.Store(&ring)
	s.changed()
	return nil
}

// record makes a key the one that seals, unless another server is faster. It returns the
// stored record.
func (s *Sealer) record(ctx context.Context, from Record, id string) (Record, error) {
	check, err := s.Ring().Seal(id, checkText, checkContext)
	if err != nil {
		return Record{}, fmt.Errorf("%w: %w", storage.ErrInvalid, err)
	}
	to := Record{Key: id, Check: check}
	if done, err := s.records.SetSealingRecord(ctx, from, to); err != nil || done {
		return to, err
	}
	return s.records.SealingRecord(ctx)
}

// Seal returns an object in the form in which it is stored: with its data sealed. stored is
// the stored object, nil for none. The result has the sealed data of stored if the data is
// the same, or if the object is a document of stored, which lacks the data. The error is a
// storage.ErrInvalid, or a storage.ErrUnavailable if the server cannot seal. A trial seals
// nothing, and its result must not be stored.
func (s *Sealer) Seal(ctx context.Context, object, stored *config.Config, trial bool) (*config.Config, error) {
	spec, ok := object.Spec.(*secret.Spec)
	if !ok {
		return object, nil
	}
	out := object.Clone()
	delete(out.Annotations, lastApplied)
	had := &secret.Spec{}
	if stored != nil {
		if before, ok := stored.Spec.(*secret.Spec); ok {
			had = before
		}
	}
	next := &secret.Spec{Type: spec.Type, Immutable: spec.Immutable}
	if next.Type == "" {
		next.Type = secret.Opaque
	}
	out.Spec = next
	if had.Type != "" && had.Type != next.Type {
		return nil, fmt.Errorf("%w: type: is %s, and the stored secret is %s: the type of a secret never changes: delete it first", storage.ErrInvalid, next.Type, had.Type)
	}
	if !spec.InClear() && spec.Sealed != nil {
		if had.Sealed == nil || had.Sealed.Content != spec.Sealed.Content {
			return nil, fmt.Errorf("%w: data: is missing: documents and the history have no data of secrets, and that of this one has changed or gone since: store it again, with its data", storage.ErrInvalid)
		}
		next.Sealed = had.Sealed
		return out, nil
	}
	entries := spec.Entries()
	if had.Sealed != nil {
		if before, err := s.Open(stored); err == nil && maps.EqualFunc(before, entries, bytes.Equal) {
			next.Sealed = had.Sealed
			return out, nil
		}
		if had.Immutable != nil && *had.Immutable {
			return nil, fmt.Errorf("%w: data: the secret is immutable: delete it first", storage.ErrInvalid)
		}
	}
	var err error
	next.Sealed, err = s.sealed(ctx, out.Key(), entries, trial)
	return out, err
}

// lastApplied is the annotation in which kubectl keeps the applied document, data included.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

func (s *Sealer) sealed(ctx context.Context, key config.Key, entries map[string][]byte, trial bool) (*secret.Sealed, error) {
	id, err := s.current(ctx, trial)
	if err != nil {
		return nil, err
	}
	if trial {
		return public(entries), nil
	}
	return With(s.Ring(), id, key, entries)
}

// With returns the sealed form of the data of a secret, under a key of a ring.
func With(ring seal.Ring, id string, key config.Key, entries map[string][]byte) (*secret.Sealed, error) {
	text, err := json.Marshal(entries)
	if err != nil {
		return nil, err
	}
	out := public(entries)
	*out.Box, err = ring.Seal(id, text, boxContext(key))
	return out, err
}

// public returns the sealed form without what is sealed.
func public(entries map[string][]byte) *secret.Sealed {
	out := &secret.Sealed{Content: rand.Text(), Certificates: secret.Certificates(entries), Box: &seal.Box{}}
	for _, name := range secret.Names(entries) {
		out.Entries = append(out.Entries, secret.Entry{Name: name, Bytes: len(entries[name])})
	}
	return out
}

// boxContext binds a box to its object.
func boxContext(key config.Key) []byte { return []byte(key.Path()) }

// Open returns the data of a stored secret. The error says why this server cannot open
// it.
func (s *Sealer) Open(object *config.Config) (map[string][]byte, error) {
	return Open(s.Ring(), object)
}

// Unseal returns a stored secret as a request would send it, with its data; any other object
// as documents show it. The error says why this server cannot open it.
func (s *Sealer) Unseal(object *config.Config) (*config.Config, error) {
	spec, ok := object.Spec.(*secret.Spec)
	if !ok || spec.Sealed == nil {
		return config.Shown(object), nil
	}
	data, err := s.Open(object)
	if err != nil {
		return nil, err
	}
	out := *object
	out.Spec = &secret.Spec{Type: spec.Type, Immutable: spec.Immutable, Data: data}
	return &out, nil
}

// Opens says whether a ring has the key of a secret. A secret of a dry run is not sealed,
// and counts as one that opens.
func Opens(ring seal.Ring, spec *secret.Spec) bool {
	return spec.Sealed != nil && spec.Sealed.Box != nil && (spec.Sealed.Box.Key == "" || ring.Has(spec.Sealed.Box.Key))
}

// Open returns the data of a stored secret, whose key the ring must have. The error says
// why the secret cannot be opened.
func Open(ring seal.Ring, object *config.Config) (map[string][]byte, error) {
	spec, ok := object.Spec.(*secret.Spec)
	if !ok || spec.Sealed == nil || spec.Sealed.Box == nil {
		return nil, fmt.Errorf("%s has no data", object.Key())
	}
	text, err := ring.Open(*spec.Sealed.Box, boxContext(object.Key()))
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", object.Key(), err)
	}
	entries := map[string][]byte{}
	if err := json.Unmarshal(text, &entries); err != nil {
		return nil, fmt.Errorf("open %s: %w", object.Key(), seal.ErrDamaged)
	}
	return entries, nil
}

// Reseal returns a stored secret under the key that seals now, and whether it differs.
func (s *Sealer) Reseal(ctx context.Context, object *config.Config) (*config.Config, bool, error) {
	spec, ok := object.Spec.(*secret.Spec)
	if !ok || spec.Sealed == nil || spec.Sealed.Box == nil {
		return nil, false, fmt.Errorf("%w: %s has no data", storage.ErrInvalid, object.Key())
	}
	id, err := s.current(ctx, false)
	if err != nil || spec.Sealed.Box.Key == id {
		return object, false, err
	}
	box, err := s.Ring().Reseal(*spec.Sealed.Box, id, boxContext(object.Key()))
	if err != nil {
		return nil, false, fmt.Errorf("%w: open %s: %w", storage.ErrUnavailable, object.Key(), err)
	}
	out := object.Clone()
	out.Spec.(*secret.Spec).Sealed.Box = &box
	return out, true, nil
}

// AddKey makes a new key, which opens but does not seal yet, and returns its id.
func (s *Sealer) AddKey() (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ring, id := s.Ring().WithNew()
	return id, s.keep(ring)
}

// Import adds the keys of a file that another server exported, and returns the ids of
// those that are new here.
func (s *Sealer) Import(text []byte) ([]string, error) {
	other, err := seal.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", storage.ErrInvalid, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	had := s.Ring()
	var added []string
	for _, id := range other.IDs() {
		if !had.Has(id) {
			added = append(added, id)
		}
	}
	if len(added) == 0 {
		return nil, nil
	}
	return added, s.keep(had.With(other))
}

// Use makes a key the one that seals, on all servers of the store. If this server lacks the
// key that has sealed so far, which another may have, Use returns an error, unless lost is
// set.
func (s *Sealer) Use(ctx context.Context, id string, lost bool) error {
	from, err := s.records.SealingRecord(ctx)
	if err != nil || from.Key == id {
		return err
	}
	if from.Key != "" && !lost {
		if err := s.holds(from); err != nil {
			return err
		}
	}
	to, err := s.record(ctx, from, id)
	if err == nil && to.Key != id {
		err = fmt.Errorf("%w: another server has made %s the sealing key meanwhile", storage.ErrConflict, to.Key)
	}
	return err
}

// Current returns the id of the key that seals, empty before the first secret.
func (s *Sealer) Current(ctx context.Context) (string, error) {
	record, err := s.records.SealingRecord(ctx)
	return record.Key, err
}
