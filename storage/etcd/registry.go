package etcd

import (
	"bytes"
	"compress/flate"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"

	"github.com/portolan-mesh/portolan/storage/cores"
	"github.com/portolan-mesh/portolan/storage/etcd/envelope"
)

// RegistryHead describes the saved rows of a registry's source.
type RegistryHead struct {
	// Source is the name of the source: words between slashes.
	Source string
	// Confirmed is when the source last confirmed the saved content. Touched is when a
	// server that follows the source last wrote the head. Both are precise to the
	// millisecond.
	Confirmed, Touched time.Time
	// State is opaque; the registry writes and reads it.
	State []byte
}

// RegistryContent is everything saved for a source.
type RegistryContent struct {
	// Head is nil if nothing is saved.
	Head *RegistryHead
	// Buckets are the buckets by number.
	Buckets map[uint32]RegistryBucket
}

// RegistryBucket is a bucket as it is saved.
type RegistryBucket struct {
	// Items are its items by key.
	Items map[string][]byte
	// Bytes is the size of its value in the store.
	Bytes int
}

const (
	// registryHead is the last part of the key of a head.
	registryHead = "head"
	// maxItems bounds the size of an inflated bucket.
	maxItems = 64 << 20
)

// RegistryHeadKey returns the key of the head of a source.
func RegistryHeadKey(source string) string { return RegistryPrefix + source + "/" + registryHead }

// RegistryBucketKey returns the key of a bucket of a source.
func RegistryBucketKey(source string, number uint32) string {
	return fmt.Sprintf("%s%s/%04x", RegistryPrefix, source, number)
}

// EncodeRegistryHead returns the value of a head.
func EncodeRegistryHead(h *RegistryHead) ([]byte, error) {
	return envelope.Encode(&envelope.RegistryHead{
		Source: h.Source, Confirmed: h.Confirmed.UnixMilli(), Touched: h.Touched.UnixMilli(), State: h.State,
	})
}

// deflaters are compressors to use again: one has a megabyte, and a save uses thousands.
var deflaters = sync.Pool{New: func() any {
	w, err := flate.NewWriter(nil, flate.BestSpeed)
	if err != nil {
		panic(err) // only of a wrong level
	}
	return w
}}

// EncodeRegistryBucket returns the value of a bucket. Equal items give equal values.
func EncodeRegistryBucket(source string, number uint32, items map[string][]byte) ([]byte, error) {
	all := &envelope.RegistryItems{}
	for _, key := range slices.Sorted(maps.Keys(items)) {
		all.Items = append(all.Items, &envelope.RegistryItem{Key: key, Value: items[key]})
	}
	plain, err := proto.MarshalOptions{Deterministic: true}.Marshal(all)
	if err != nil {
		return nil, err
	}
	var deflated bytes.Buffer
	w := deflaters.Get().(*flate.Writer)
	defer deflaters.Put(w)
	w.Reset(&deflated)
	if _, err := w.Write(plain); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return envelope.Encode(&envelope.RegistryBucket{Source: source, Number: number, Items: deflated.Bytes()})
}

// DecodeRegistryHead is the inverse of EncodeRegistryHead. The error is an
// ErrForeignKey or an ErrUndecodable.
func DecodeRegistryHead(kv *mvccpb.KeyValue) (*RegistryHead, error) {
	source, last, err := parseRegistryKey(string(kv.Key))
	if err != nil {
		return nil, err
	}
	value := &envelope.RegistryHead{}
	if err := open(kv, value); err != nil {
		return nil, err
	}
	if value.Source != source || last != registryHead {
		return nil, undecodable(kv, fmt.Sprintf("it is the head of another source: %s", value.Source))
	}
	return &RegistryHead{
		Source: source, Confirmed: time.UnixMilli(value.Confirmed).UTC(), Touched: time.UnixMilli(value.Touched).UTC(), State: value.State,
	}, nil
}

// DecodeRegistryBucket is the inverse of EncodeRegistryBucket. The error is an
// ErrForeignKey or an ErrUndecodable.
func DecodeRegistryBucket(kv *mvccpb.KeyValue) (number uint32, items map[string][]byte, err error) {
	source, last, err := parseRegistryKey(string(kv.Key))
	if err != nil {
		return 0, nil, err
	}
	value := &envelope.RegistryBucket{}
	if err := open(kv, value); err != nil {
		return 0, nil, err
	}
	if n, err := strconv.ParseUint(last, 16, 32); err != nil || value.Source != source || uint64(value.Number) != n {
		return 0, nil, undecodable(kv, fmt.Sprintf("it is bucket %x of %s", value.Number, value.Source))
	}
	plain, err := io.ReadAll(io.LimitReader(flate.NewReader(bytes.NewReader(value.Items)), maxItems+1))
	if err == nil && len(plain) > maxItems {
		err = fmt.Errorf("it has more than %d bytes", maxItems)
	}
	all := &envelope.RegistryItems{}
	if err == nil {
		err = proto.Unmarshal(plain, all)
	}
	if err != nil {
		return 0, nil, undecodable(kv, "its items: "+err.Error())
	}
	items = make(map[string][]byte, len(all.Items))
	for _, i := range all.Items {
		items[i.Key] = i.Value
	}
	return value.Number, items, nil
}

// parseRegistryKey reads a key under RegistryPrefix. The error is an ErrForeignKey.
func parseRegistryKey(key string) (source, last string, err error) {
	path, ok := strings.CutPrefix(key, RegistryPrefix)
	at := strings.LastIndexByte(path, '/')
	if !ok || at <= 0 || at == len(path)-1 {
		return "", "", foreign(key, "it is not a part of a source under "+RegistryPrefix)
	}
	return path[:at], path[at+1:], nil
}

// ReadRegistry reads everything saved for a source, as of one revision. It skips and
// logs values that cannot be decoded.
func (s *Store) ReadRegistry(ctx context.Context, source string) (RegistryContent, error) {
	var out RegistryContent
	err := restartIfCompacted(func() error {
		out = RegistryContent{Buckets: map[uint32]RegistryBucket{}}
		_, err := Range{Prefix: RegistryPrefix + source + "/", LargeValues: true}.Pages(ctx, s.get, func(page []*mvccpb.KeyValue) error {
			parts := make([]registryPart, len(page))
			cores.Each(len(page), func(i int) { parts[i] = partOf(page[i]) })
			for i, part := range parts {
				switch {
				case part.err != nil:
					s.o.Log.WarnContext(ctx, "what was saved of a registry is left out", "key", string(page[i].Key), "revision", page[i].ModRevision, "err", part.err)
				case part.head != nil:
					out.Head = part.head
				default:
					out.Buckets[part.number] = part.bucket
				}
			}
			return nil
		})
		return err
	})
	if err != nil {
		return RegistryContent{}, fmt.Errorf("read %s%s: %w", RegistryPrefix, source, s.readError(err))
	}
	return out, nil
}

// registryPart is what a key of a source has: a head or a bucket.
type registryPart struct {
	head   *RegistryHead
	number uint32
	bucket RegistryBucket
	err    error
}

func partOf(kv *mvccpb.KeyValue) (p registryPart) {
	if strings.HasSuffix(string(kv.Key), "/"+registryHead) {
		p.head, p.err = DecodeRegistryHead(kv)
		return p
	}
	p.bucket.Bytes = len(kv.Value)
	p.number, p.bucket.Items, p.err = DecodeRegistryBucket(kv)
	return p
}

// RegistryHeads reads the heads of all sources. If a head cannot be decoded, it has only
// the name of the source.
func (s *Store) RegistryHeads(ctx context.Context) ([]*RegistryHead, error) {
	var sources []string
	err := restartIfCompacted(func() error {
		sources = nil
		_, err := s.walk(ctx, Range{Prefix: RegistryPrefix, KeysOnly: true}, func(kv *mvccpb.KeyValue) {
			if source, _, err := parseRegistryKey(string(kv.Key)); err == nil && !slices.Contains(sources, source) {
				sources = append(sources, source)
			}
		})
		return err
	})
	var heads []*RegistryHead
	for _, source := range sources {
		head := &RegistryHead{Source: source}
		var answer *mvccpb.KeyValue
		if answer, err = s.peek(ctx, RegistryHeadKey(source)); err != nil {
			break
		}
		if answer != nil {
			if decoded, err := DecodeRegistryHead(answer); err == nil {
				head = decoded
			}
		}
		heads = append(heads, head)
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", RegistryPrefix, s.readError(err))
	}
	return heads, nil
}

// peek returns nil if the key is absent.
func (s *Store) peek(ctx context.Context, key string) (*mvccpb.KeyValue, error) {
	answer, err := s.get(ctx, key)
	if err != nil || len(answer.Kvs) == 0 {
		return nil, err
	}
	return answer.Kvs[0], nil
}

// DeleteRegistry deletes everything saved for a source, the head last.
func (s *Store) DeleteRegistry(ctx context.Context, source string) error {
	var writes []SideWrite
	err := restartIfCompacted(func() error {
		writes = nil
		_, err := s.walk(ctx, Range{Prefix: RegistryPrefix + source + "/", KeysOnly: true}, func(kv *mvccpb.KeyValue) {
			writes = append(writes, SideWrite{Key: string(kv.Key), Revision: Any})
		})
		return err
	})
	if err != nil {
		return fmt.Errorf("delete %s%s: %w", RegistryPrefix, source, s.readError(err))
	}
	for batch := range slices.Chunk(writes, SideBatch) { // "head" comes after all numbers
		if _, err := s.WriteSide(ctx, batch); err != nil {
			return err
		}
	}
	return nil
}
