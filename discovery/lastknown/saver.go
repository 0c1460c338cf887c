package lastknown

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"hash/fnv"
	"log/slog"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/portolan-mesh/portolan/storage/etcd"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/storage/retry"
)

const (
	// buckets is the number of buckets of a source. With more buckets, a change of one item
	// writes less, and a change of many writes more.
	buckets = 256
	// batchBytes bounds what is written at a time, and batchPause is the pause after that.
	batchBytes = 128 << 10
	batchPause = 250 * time.Millisecond
	// maxBucket is the size limit of a bucket: well below the limit of etcd.
	maxBucket = 1 << 20
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
}

// running connects Flush with Run.
type running struct {
	asks  chan chan<- struct{} // Run closes each when all is saved
	ended chan struct{}        // closed when Run ends
}

// NewSaver makes a Saver.
func NewSaver(o Options) *Saver {
	if o.Interval == 0 {
		o.Interval = DefaultInterval
	}
	o.Look = cmp.Or(o.Look, DefaultLook)
	if o.Sources == nil {
		o.Sources = func() []Source { return nil }
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Saver{o: o}
}

// Flush makes Run save the content of all sources at once. It returns when that is done, Run
// ends, or ctx does. If Run does not run, it does nothing.
func (s *Saver) Flush(ctx context.Context) {
	r := s.running.Load()
	if r == nil {
		return
	}
	done := make(chan struct{})
	select {
	case r.asks <- done:
	case <-r.ended:
	case <-ctx.Done():
		return
	}
	select {
	case <-done:
	case <-r.ended:
	case <-ctx.Done():
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
	ticker := time.NewTicker(s.o.Look)
	defer ticker.Stop()
	var cleaned time.Time
	var asked chan<- struct{} // not nil while a Flush waits
	for {
		sources := s.o.Sources()
		if err := s.follow(ctx, store, sources, all); err != nil {
			return err
		}
		for _, source := range sources {
			if err := all[source.SourceName()].saveIfDue(ctx, asked != nil); err != nil {
				return err
			}
		}
		if asked != nil {
			close(asked)
			asked = nil
		}
		if now := s.o.Now(); now.Sub(cleaned) >= touchInterval {
			if err := s.clean(ctx, store, all, now); err != nil {
				return err
			}
			cleaned = now
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		case asked = <-r.asks:
		}
	}
}

// follow makes all the savers of the sources. It deletes what is saved of those that have gone.
func (s *Saver) follow(ctx context.Context, store Store, sources []Source, all map[string]*sourceSaver) error {
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
		all[name] = s.newSourceSaver(store, source, content)
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if there[name] {
			continue
		}
		if err := store.DeleteRegistry(ctx, name); err != nil {
			return err
		}
		delete(all, name)
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

type sourceSaver struct {
	*Saver
	store  Store
	source Source
	head   *etcd.RegistryHead
	// digests holds the digests of the buckets in the store.
	digests map[uint32][sha256.Size]byte
	// lastItems holds the items of the last save. first is true until there was one.
	lastItems pmap.Map[Item]
	first     bool
	lastSave  time.Time // when the last save began
}

func (s *Saver) newSourceSaver(store Store, source Source, content etcd.RegistryContent) *sourceSaver {
	one := &sourceSaver{Saver: s, store: store, source: source, head: content.Head, digests: map[uint32][sha256.Size]byte{}, first: true}
	if one.head == nil {
		one.head = &etcd.RegistryHead{Source: source.SourceName()}
	}
	for number, items := range content.Buckets {
		one.digests[number] = digest(items)
	}
	return one
}

// digest returns the hash of the items of a bucket.
func digest(items map[string][]byte) [sha256.Size]byte {
	var text []byte
	for _, key := range slices.Sorted(maps.Keys(items)) {
		for _, part := range [][]byte{[]byte(key), items[key]} {
			text = append(binary.AppendUvarint(text, uint64(len(part))), part...)
		}
	}
	return sha256.Sum256(text)
}

func bucket(key string) uint32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(key)) // never fails
	return h.Sum32() % buckets
}

// saveIfDue saves the content of the source if it has changed, it is confirmed, and Interval has
// passed since the last save. If atOnce is set, the time does not matter.
func (s *sourceSaver) saveIfDue(ctx context.Context, atOnce bool) error {
	now := s.o.Now()
	known, ok := s.source.Known()
	pause := batchPause
	if atOnce {
		pause = 0
	}
	switch {
	case ok && s.first, ok && (atOnce || now.Sub(s.lastSave) >= s.o.Interval) && (!pmap.Equal(s.lastItems, known.Items) || string(known.State) != string(s.head.State)):
		return s.save(ctx, known, now, pause)
	case s.head.Confirmed.IsZero(), now.Sub(s.head.Touched) < touchInterval:
		return nil
	}
	if ok {
		s.head.Confirmed = now
	}
	return s.touch(ctx, now)
}

// save writes the buckets that differ, with a pause after each batch, and the head
// last.
func (s *sourceSaver) save(ctx context.Context, known Known, now time.Time, pause time.Duration) error {
	s.lastSave = now
	var writes []etcd.SideWrite
	size, written := 0, 0
	flush := func() error {
		if len(writes) == 0 {
			return nil
		}
		_, err := s.store.WriteSide(ctx, writes)
		if written += size; err == nil {
			err = retry.Sleep(ctx, pause)
		}
		writes, size = nil, 0
		return err
	}
	name := s.source.SourceName()
	for number, items := range s.group(known.Items) {
		values := map[string][]byte{}
		for key, item := range items {
			value, err := item.Value()
			if err != nil {
				s.o.Logger.Warn("what a source has cannot be saved", "source", name, "item", key, "err", err)
				continue
			}
			values[key] = value
		}
		sum := digest(values)
		if before, ok := s.digests[number]; ok && before == sum || !ok && len(values) == 0 {
			continue
		}
		write := etcd.SideWrite{Key: etcd.RegistryBucketKey(name, number), Revision: etcd.Any}
		if len(values) > 0 {
			value, err := etcd.EncodeRegistryBucket(name, number, values)
			if err != nil {
				return err
			}
			if len(value) > maxBucket {
				s.o.Logger.Warn("a part of what a source has is too large to be saved", "source", name, "bucket", number, "bytes", len(value))
				continue
			}
			write.Value = value
		}
		if size+len(write.Value) > batchBytes || len(writes) == etcd.SideBatch {
			if err := flush(); err != nil {
				return err
			}
		}
		writes, size = append(writes, write), size+len(write.Value)
		if s.digests[number] = sum; len(values) == 0 {
			delete(s.digests, number)
		}
	}
	if err := flush(); err != nil {
		return err
	}
	s.head.State, s.head.Confirmed = known.State, now
	if err := s.touch(ctx, now); err != nil {
		return err
	}
	s.lastItems, s.first = known.Items, false
	s.o.Logger.Debug("what a source has is saved", "source", name, "items", known.Items.Len(), "bytes", written)
	return nil
}

// group returns the items of the buckets that differ from their saved form, in the
// order of the buckets.
func (s *sourceSaver) group(items pmap.Map[Item]) func(yield func(uint32, map[string]Item) bool) {
	differ := map[uint32]map[string]Item{}
	if s.first {
		for number := range uint32(buckets) {
			differ[number] = map[string]Item{}
		}
		for number := range s.digests { // written by a version that has more buckets
			differ[number] = map[string]Item{}
		}
	}
	for change := range pmap.Diff(s.lastItems, items) {
		differ[bucket(change.Key)] = map[string]Item{}
	}
	for key, item := range items.All() {
		if of := differ[bucket(key)]; of != nil {
			of[key] = item
		}
	}
	return func(yield func(uint32, map[string]Item) bool) {
		for _, number := range slices.Sorted(maps.Keys(differ)) {
			if !yield(number, differ[number]) {
				return
			}
		}
	}
}

// touch writes the head.
func (s *sourceSaver) touch(ctx context.Context, now time.Time) error {
	s.head.Touched = now
	value, err := etcd.EncodeRegistryHead(s.head)
	if err != nil {
		return err
	}
	_, err = s.store.WriteSide(ctx, []etcd.SideWrite{{Key: etcd.RegistryHeadKey(s.head.Source), Value: value, Revision: etcd.Any}})
	return err
}
