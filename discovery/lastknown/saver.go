package lastknown

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/portolan-mesh/portolan/storage/etcd"
)

const (
	// touchInterval is how often Touched is written in the head of a source, to show that a
	// server follows it.
	touchInterval = time.Hour
	// MaxAge is how long the saved content of a source is kept after the last server followed
	// it.
	MaxAge = 7 * 24 * time.Hour
)

// The defaults of Options.
const (
	DefaultInterval = time.Minute
	DefaultLook     = 2 * time.Second
)

// Options configure a Saver.
type Options struct {
	// Sources returns the sources to save now. What is saved of one that is missing after it was there
	// is deleted; nil means no sources.
	Sources func() []Source
	// Interval is the least time between two writes of a source, however much changes; 0 means
	// DefaultInterval. Look is how often the Saver looks for changes; 0 means DefaultLook.
	Interval, Look time.Duration
	// Logger may be nil.
	Logger *slog.Logger
	// MaxSource bounds the compressed bytes that are saved of a source; 0 means 256 MiB.
	MaxSource int
	// Now is the clock; nil means the system's clock.
	Now func() time.Time
}

// Store keeps the content of sources. An *etcd.Store implements it.
type Store interface {
	// ReadRegistry returns all that is saved for a source, RegistryHeads the heads of all sources.
	ReadRegistry(ctx context.Context, source string) (etcd.RegistryContent, error)
	RegistryHeads(context.Context) ([]*etcd.RegistryHead, error)
	// WriteSide saves heads and buckets of sources, at most etcd.SideBatch at once.
	WriteSide(context.Context, []etcd.SideWrite) (bool, error)
	// DeleteRegistry deletes all that is saved for a source.
	DeleteRegistry(ctx context.Context, source string) error
}

// Saver saves the content of sources. Only one server at a time runs one.
type Saver struct {
	o       Options
	running atomic.Pointer[running] // nil while Run does not run

	mu      sync.Mutex // guards the fields below
	unsaved map[string]error
	// pending are the sources that are being saved for the first time.
	pending map[string]bool
}

// running connects Flush with Run.
type running struct {
	asks  chan chan<- struct{} // Run closes each when all is saved
	ended chan struct{}        // closed when Run ends
	// waiting are those of asks that Run has received and not closed. Only Run uses it.
	waiting []chan<- struct{}
}

// isAsked says whether a Flush waits.
func (r *running) isAsked() bool { return len(r.waiting) > 0 }

// rest waits for d, or until a Flush asks. It does not wait while one does.
func (r *running) rest(ctx context.Context, d time.Duration) error {
	if r.isAsked() {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	case asked := <-r.asks:
		r.waiting = append(r.waiting, asked)
	}
	return ctx.Err()
}

// NewSaver makes a Saver.
func NewSaver(o Options) *Saver {
	if o.Interval == 0 {
		o.Interval = DefaultInterval
	}
	o.Look, o.MaxSource = cmp.Or(o.Look, DefaultLook), cmp.Or(o.MaxSource, maxSource)
	if o.Sources == nil {
		o.Sources = func() []Source { return nil }
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Saver{o: o, unsaved: map[string]error{}, pending: map[string]bool{}}
}

// Flush makes Run save the content of all sources without a pause. It returns nil when that is
// done or Run ends, and the error of ctx if that ends first. If Run does not run, it does nothing.
func (s *Saver) Flush(ctx context.Context) error {
	r := s.running.Load()
	if r == nil {
		return nil
	}
	done := make(chan struct{})
	select {
	case r.asks <- done:
	case <-r.ended:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case <-done:
	case <-r.ended:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// Degraded says which parts of sources cannot be saved, nil for none or while Run does not run.
func (s *Saver) Degraded() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []error
	for _, source := range slices.Sorted(maps.Keys(s.unsaved)) {
		all = append(all, s.unsaved[source])
	}
	return errors.Join(all...)
}

// Remark says which sources are being saved for the first time, empty for none or while Run does
// not run.
func (s *Saver) Remark() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.pending) == 0 {
		return ""
	}
	return "not saved yet, and unknown to a server that starts while they are away: " + strings.Join(slices.Sorted(maps.Keys(s.pending)), ", ")
}

// note takes what is said of a source: whether it is being saved for the first time, and which parts
// of it cannot be saved; nil is for none.
func (s *Saver) note(source string, pending bool, unsaved error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.pending, source)
	delete(s.unsaved, source)
	if pending {
		s.pending[source] = true
	}
	if unsaved != nil {
		s.unsaved[source] = unsaved
	}
}

// Run saves the content of the sources into a store, until ctx ends or the store fails.
// The store must let only the leader write. Run is called once at a time.
func (s *Saver) Run(ctx context.Context, store Store) error {
	r := &running{asks: make(chan chan<- struct{}), ended: make(chan struct{})}
	s.running.Store(r)
	defer close(r.ended)
	defer s.running.Store(nil)
	all := map[string]*sourceSaver{}
	defer func() {
		for name := range all {
			s.note(name, false, nil)
		}
	}()
	var cleaned time.Time
	for {
		asked := len(r.waiting)
		sources := s.o.Sources()
		if err := s.follow(ctx, store, r, sources, all); err != nil {
			return err
		}
		for _, source := range sources {
			if err := all[source.SourceName()].saveIfDue(ctx, asked > 0); err != nil {
				return err
			}
		}
		for _, done := range r.waiting[:asked] {
			close(done)
		}
		r.waiting = r.waiting[asked:]
		if now := s.o.Now(); now.Sub(cleaned) >= touchInterval {
			if err := s.clean(ctx, store, all, now); err != nil {
				return err
			}
			cleaned = now
		}
		if r.rest(ctx, s.o.Look) != nil {
			return nil
		}
	}
}

// follow makes all the savers of the sources. It deletes what is saved of those that have gone.
func (s *Saver) follow(ctx context.Context, store Store, r *running, sources []Source, all map[string]*sourceSaver) error {
	there := map[string]bool{}
	for _, source := range sources {
		name := source.SourceName()
		there[name] = true
		if one := all[name]; one != nil {
			one.source = source
			continue
		}
		content, err := store.ReadRegistry(ctx, name)
		if err != nil {
			return err
		}
		all[name] = s.newSourceSaver(store, r, source, content)
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if there[name] {
			continue
		}
		if err := store.DeleteRegistry(ctx, name); err != nil {
			return err
		}
		delete(all, name)
		s.note(name, false, nil)
		s.o.Logger.Info("what was last known of a source is deleted: it is followed no more", "source", name)
	}
	return nil
}

// clean deletes the content of sources that no server has followed for MaxAge.
func (s *Saver) clean(ctx context.Context, store Store, all map[string]*sourceSaver, now time.Time) error {
	heads, err := store.RegistryHeads(ctx)
	if err != nil {
		return err
	}
	for _, head := range heads {
		if all[head.Source] != nil || now.Sub(head.Touched) < MaxAge {
			continue
		}
		if err := store.DeleteRegistry(ctx, head.Source); err != nil {
			return err
		}
		s.o.Logger.Info("what was last known of a source is deleted, which no server has followed for long", "source", head.Source, "since", head.Touched)
	}
	return nil
}
