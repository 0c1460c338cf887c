package lastknown

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/portolan-mesh/portolan/storage/etcd"
	"github.com/portolan-mesh/portolan/storage/pmap"
)

const (
	// buckets is the number of buckets of a source. With more buckets, a change of one item
	// writes less, and a change of many writes more. A bucket of 100 MB has 25 kB.
	buckets = 4096
	// batchBytes bounds what is written at a time. The pause after that is restFactor times as
	// long as it took: a save takes a half of a core at most, and of the time of the store.
	batchBytes = 128 << 10
	restFactor = 1
	// maxBucket bounds the compressed bytes of a bucket, well below the limit of etcd.
	maxBucket = 1 << 20
	// maxSource bounds the compressed bytes of a source, well below the quota of a store.
	maxSource = 256 << 20
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

	mu      sync.Mutex // guards unsaved
	unsaved map[string]error
}

// running connects Flush with Run.
type running struct {
	asks  chan chan<- struct{} // Run closes each when all is saved
	ended chan struct{}        // closed when Run ends
	// waiting are those of asks that Run has received and not closed. Only Run uses it.
	waiting []chan<- struct{}
}

// rest waits for d, or until a Flush asks. It does not wait while one does.
func (r *running) rest(ctx context.Context, d time.Duration) error {
	if len(r.waiting) > 0 {
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
	return &Saver{o: o, unsaved: map[string]error{}}
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

// Degraded says which parts of sources are not saved, nil for none or while Run does not run.
func (s *Saver) Degraded() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []error
	for _, source := range slices.Sorted(maps.Keys(s.unsaved)) {
		all = append(all, s.unsaved[source])
	}
	return errors.Join(all...)
}

// setUnsaved takes which parts of a source are not saved; nil is for none.
func (s *Saver) setUnsaved(source string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.unsaved, source)
	if err != nil {
		s.unsaved[source] = err
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
			s.setUnsaved(name, nil)
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
		s.setUnsaved(name, nil)
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
	store   Store
	running *running
	source  Source
	head    *etcd.RegistryHead
	// saved describes the buckets in the store, and bytes sums up their sizes.
	saved map[uint32]savedBucket
	bytes int
	// left says why buckets are not saved as they are.
	left map[uint32]string
	// lastItems holds the items of the last save. first is true until there was one.
	lastItems pmap.Map[Item]
	first     bool
	lastSave  time.Time // when the last save began
}

// savedBucket describes a bucket in the store: the digest of its items and its size there.
type savedBucket struct {
	digest [sha256.Size]byte
	bytes  int
}

func (s *Saver) newSourceSaver(store Store, r *running, source Source, content etcd.RegistryContent) *sourceSaver {
	one := &sourceSaver{Saver: s, store: store, running: r, source: source, head: content.Head, saved: map[uint32]savedBucket{}, left: map[uint32]string{}, first: true}
	if one.head == nil {
		one.head = &etcd.RegistryHead{Source: source.SourceName()}
	}
	for number, bucket := range content.Buckets {
		one.set(number, savedBucket{digest(bucket.Items), bucket.Bytes})
	}
	return one
}

// set takes what the store has of a bucket, nothing if its size is 0.
func (s *sourceSaver) set(number uint32, now savedBucket) {
	s.bytes += now.bytes - s.saved[number].bytes
	if s.saved[number] = now; now.bytes == 0 {
		delete(s.saved, number)
	}
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
	switch {
	case ok && s.first, ok && (atOnce || now.Sub(s.lastSave) >= s.o.Interval) && (!pmap.Equal(s.lastItems, known.Items) || string(known.State) != string(s.head.State)):
		return s.save(ctx, known, now)
	case s.head.Confirmed.IsZero(), now.Sub(s.head.Touched) < touchInterval:
		return nil
	}
	if ok {
		s.head.Confirmed = now
	}
	return s.touch(ctx, now)
}

// save writes the buckets that differ, with a pause after each batch, and the head last. So a
// first save that is interrupted leaves nothing that counts.
func (s *sourceSaver) save(ctx context.Context, known Known, now time.Time) error {
	s.lastSave = now
	b := batch{began: time.Now()}
	for number, items := range s.group(known.Items) {
		write, is, err := s.encode(number, items)
		if err != nil {
			return err
		}
		if is == s.saved[number] {
			continue
		}
		if b.bytes+is.bytes > batchBytes || len(b.writes) == etcd.SideBatch {
			if err := s.write(ctx, &b); err != nil {
				return err
			}
		}
		b.writes, b.bytes = append(b.writes, write), b.bytes+is.bytes
		s.set(number, is)
	}
	if err := s.write(ctx, &b); err != nil {
		return err
	}
	s.head.State, s.head.Confirmed = known.State, now
	if err := s.touch(ctx, now); err != nil {
		return err
	}
	s.lastItems, s.first = known.Items, false
	s.tellUnsaved()
	s.o.Logger.Debug("what a source has is saved", "source", s.source.SourceName(), "items", known.Items.Len(), "bytes", b.written)
	return nil
}

// batch is what is written at a time.
type batch struct {
	writes         []etcd.SideWrite
	bytes, written int
	began          time.Time
}

// write writes a batch, and rests.
func (s *sourceSaver) write(ctx context.Context, b *batch) error {
	if len(b.writes) == 0 {
		return nil
	}
	if _, err := s.store.WriteSide(ctx, b.writes); err != nil {
		return err
	}
	err := s.running.rest(ctx, restFactor*time.Since(b.began))
	*b = batch{written: b.written + b.bytes, began: time.Now()}
	return err
}

// encode makes the write of a bucket, and describes it. If the bucket cannot be saved, what was saved
// of it stays: then it returns that.
func (s *sourceSaver) encode(number uint32, items map[string]Item) (etcd.SideWrite, savedBucket, error) {
	delete(s.left, number)
	name, was := s.source.SourceName(), s.saved[number]
	write := etcd.SideWrite{Key: etcd.RegistryBucketKey(name, number), Revision: etcd.Any}
	values := map[string][]byte{}
	for _, key := range slices.Sorted(maps.Keys(items)) {
		value, err := items[key].Value()
		if err != nil {
			s.left[number] = fmt.Sprintf("%s: %v", key, err)
			continue
		}
		values[key] = value
	}
	if len(values) == 0 {
		return write, savedBucket{}, nil
	}
	is := savedBucket{digest: digest(values)}
	if is.digest == was.digest {
		return write, was, nil
	}
	var err error
	if write.Value, err = etcd.EncodeRegistryBucket(name, number, values); err != nil {
		return write, was, err
	}
	is.bytes = len(write.Value)
	largest := slices.MaxFunc(slices.Sorted(maps.Keys(values)), func(a, b string) int { return cmp.Compare(len(values[a]), len(values[b])) })
	switch {
	case is.bytes > maxBucket:
		s.left[number] = fmt.Sprintf("%s: it has %d bytes compressed, with what is saved beside it, and %d is the most: make it smaller", largest, is.bytes, maxBucket)
		return write, was, nil
	case s.bytes+is.bytes-was.bytes > s.o.MaxSource:
		s.left[number] = fmt.Sprintf("%s: the source has more than %d bytes compressed, which is the most", largest, s.o.MaxSource)
		return write, was, nil
	}
	return write, is, nil
}

// tellUnsaved says which buckets are not saved as they are.
func (s *sourceSaver) tellUnsaved() {
	name := s.source.SourceName()
	if len(s.left) == 0 {
		s.setUnsaved(name, nil)
		return
	}
	first := s.left[slices.Min(slices.Collect(maps.Keys(s.left)))]
	err := fmt.Errorf("%s: a server that starts while it is away lacks parts of it, or has them as they were: %d cannot be saved, such as %s", name, len(s.left), first)
	s.setUnsaved(name, err)
	s.o.Logger.Warn("what a source has is not saved whole", "err", err)
}

// group returns the items of the buckets that differ from their saved form, from the last bucket to
// the first: what a version with fewer buckets has saved is in the store until it is in its new bucket.
func (s *sourceSaver) group(items pmap.Map[Item]) func(yield func(uint32, map[string]Item) bool) {
	differ := map[uint32]map[string]Item{}
	if s.first {
		for number := range uint32(buckets) {
			differ[number] = map[string]Item{}
		}
		for number := range s.saved { // written by a version that has more buckets
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
		for _, number := range slices.Backward(slices.Sorted(maps.Keys(differ))) {
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
