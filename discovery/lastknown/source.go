package lastknown

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/portolan-mesh/portolan/storage/cores"
	"github.com/portolan-mesh/portolan/storage/etcd"
	"github.com/portolan-mesh/portolan/storage/pmap"
)

const (
	// buckets is the number of buckets of a source. With more buckets, a change of one item
	// writes less, and a change of many writes more. Of 100 MB, a bucket has 25 kB.
	buckets = 4096
	// encodedAtOnce is how many buckets are encoded before they are written.
	encodedAtOnce = 128
	// batchBytes bounds what is written at a time. The rest after that is restFactor times as
	// long as it took: a save takes half a core at most, and half of the time of the store.
	batchBytes = 128 << 10
	restFactor = 1
	// maxBucket bounds the compressed bytes of a bucket, well below the limit of etcd.
	maxBucket = 1 << 20
	// maxSource bounds the compressed bytes of a source, well below the quota of a store.
	maxSource = 256 << 20
)

// sourceSaver saves one source.
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
// passed since the last save. If atOnce is set, the time does not matter. Of unchanged content it saves when that
// was last confirmed: every touchInterval, if atOnce is set, and once the source is away. A leader that lost its
// source before the saved content was confirmed leaves that as it is.
func (s *sourceSaver) saveIfDue(ctx context.Context, atOnce bool) error {
	now := s.o.Now()
	known, ok := s.source.Known()
	ok = ok && (known.Until.IsZero() || !known.Until.Before(s.head.Confirmed))
	switch {
	case ok && s.first, ok && (atOnce || now.Sub(s.lastSave) >= s.o.Interval) && (!pmap.Equal(s.lastItems, known.Items) || string(known.State) != string(s.head.State)):
		return s.save(ctx, known, now)
	case s.head.Confirmed.IsZero():
		return nil
	case ok && (atOnce || !known.Until.IsZero()) && known.confirmed(now).After(s.head.Confirmed):
	case now.Sub(s.head.Touched) < touchInterval:
		return nil
	}
	if ok {
		s.head.Confirmed = known.confirmed(now)
	}
	return s.touch(ctx, now)
}

// confirmed returns when the source last confirmed the content.
func (k *Known) confirmed(now time.Time) time.Time {
	if k.Until.IsZero() {
		return now
	}
	return k.Until
}

// save writes the buckets that differ, with a rest after each batch, and the head last. So a
// first save that is interrupted leaves nothing that counts.
func (s *sourceSaver) save(ctx context.Context, known Known, now time.Time) error {
	s.lastSave = now
	isNew := s.head.Confirmed.IsZero()
	if isNew {
		s.note(s.source.SourceName(), true, nil)
	}
	items := s.differing(known.Items)
	b := batch{began: time.Now()}
	// From the last bucket to the first: what a version with fewer buckets has saved of an item is
	// in the store until the item is in its new bucket.
	for numbers := range slices.Chunk(slices.SortedFunc(maps.Keys(items), func(x, y uint32) int { return cmp.Compare(y, x) }), encodedAtOnce) {
		encoded := make([]encodedBucket, len(numbers))
		encode := func(i int) { encoded[i] = s.encode(numbers[i], items[numbers[i]]) }
		if s.running.isAsked() {
			cores.Each(len(numbers), encode)
		} else {
			for i := range numbers {
				encode(i)
			}
		}
		for i, number := range numbers {
			if err := s.put(ctx, &b, number, &encoded[i]); err != nil {
				return err
			}
		}
	}
	if err := s.write(ctx, &b); err != nil {
		return err
	}
	s.head.State, s.head.Confirmed = known.State, known.confirmed(now)
	if err := s.touch(ctx, now); err != nil {
		return err
	}
	s.lastItems, s.first = known.Items, false
	s.tell()
	level := slog.LevelDebug
	if isNew {
		level = slog.LevelInfo
	}
	s.o.Logger.Log(ctx, level, "what a source has is saved", "source", s.source.SourceName(), "items", known.Items.Len(), "bytes", b.written)
	return nil
}

// batch is what is written at a time.
type batch struct {
	writes         []etcd.SideWrite
	bytes, written int
	began          time.Time
}

// put adds a bucket to a batch, which it writes first if it is full. A bucket that is too large is
// left as it is in the store.
func (s *sourceSaver) put(ctx context.Context, b *batch, number uint32, e *encodedBucket) error {
	delete(s.left, number)
	was := s.saved[number]
	switch {
	case e.err != nil:
		return e.err
	case e.fault != "":
		s.left[number] = e.fault
	}
	switch {
	case e.savedBucket == was:
		return nil
	case e.bytes > maxBucket:
		s.left[number] = fmt.Sprintf("%s: it has %d bytes compressed, with what is saved beside it, and %d is the most: make it smaller", e.largest, e.bytes, maxBucket)
		return nil
	case s.bytes+e.bytes-was.bytes > s.o.MaxSource:
		s.left[number] = fmt.Sprintf("%s: the source has more than %d bytes compressed, which is the most", e.largest, s.o.MaxSource)
		return nil
	}
	if b.bytes+e.bytes > batchBytes || len(b.writes) == etcd.SideBatch {
		if err := s.write(ctx, b); err != nil {
			return err
		}
	}
	b.writes = append(b.writes, etcd.SideWrite{Key: etcd.RegistryBucketKey(s.source.SourceName(), number), Value: e.value, Revision: etcd.Any})
	b.bytes += e.bytes
	s.set(number, e.savedBucket)
	return nil
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

// encodedBucket is a bucket as it should be in the store: no value and no bytes if it has no items.
type encodedBucket struct {
	savedBucket
	value   []byte // nil if the store has it
	largest string // the key of the largest item
	fault   string // why an item is not in it
	err     error
}

// encode only reads, so it may run several times at once.
func (s *sourceSaver) encode(number uint32, items map[string]Item) (out encodedBucket) {
	values, most := map[string][]byte{}, -1
	for _, key := range slices.Sorted(maps.Keys(items)) {
		value, err := items[key].Value()
		if err != nil {
			out.fault = fmt.Sprintf("%s: %v", key, err)
			continue
		}
		if values[key] = value; len(value) > most {
			out.largest, most = key, len(value)
		}
	}
	if len(values) == 0 {
		return out
	}
	out.digest = digest(values)
	if was := s.saved[number]; was.digest == out.digest {
		out.savedBucket = was
		return out
	}
	out.value, out.err = etcd.EncodeRegistryBucket(s.source.SourceName(), number, values)
	out.bytes = len(out.value)
	return out
}

// tell says that the source is saved, and which buckets are not as the source has them.
func (s *sourceSaver) tell() {
	name := s.source.SourceName()
	if len(s.left) == 0 {
		s.note(name, false, nil)
		return
	}
	first := s.left[slices.Min(slices.Collect(maps.Keys(s.left)))]
	err := fmt.Errorf("%s: a server that starts while it is away lacks parts of it, or has them as they were: %d cannot be saved, such as %s", name, len(s.left), first)
	s.note(name, false, err)
	s.o.Logger.Warn("what a source has is not saved whole", "err", err)
}

// differing returns the items of the buckets that may differ from their saved form.
func (s *sourceSaver) differing(items pmap.Map[Item]) map[uint32]map[string]Item {
	out := map[uint32]map[string]Item{}
	if s.first {
		for number := range uint32(buckets) {
			out[number] = map[string]Item{}
		}
		for number := range s.saved { // written by a version that has more buckets
			out[number] = map[string]Item{}
		}
	}
	for change := range pmap.Diff(s.lastItems, items) {
		out[bucket(change.Key)] = map[string]Item{}
	}
	for key, item := range items.All() {
		if of := out[bucket(key)]; of != nil {
			of[key] = item
		}
	}
	return out
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
