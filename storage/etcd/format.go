package etcd

import (
	"context"
	"fmt"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"

	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/etcd/envelope"
)

// FormatKey holds the Format of the store. The first mutation of a store writes it, and
// so does the first mutation by a binary of a higher format. Every transaction compares
// its revision, so no older binary writes once a newer one has.
const FormatKey = MetaPrefix + "schema"

// The format of this binary.
const (
	// StorageFormat is the highest format that this binary writes. It rises when a binary of
	// the previous format would damage what this one writes. A new field or kind alone does
	// not raise it: an older binary keeps what it does not know.
	//
	// Format 2 adds owner references and managed fields to the envelope, which a writer
	// must update with the object, and the last known rows of registries, under
	// side/registry. Format 3 adds objects under leases: a binary of format 2 that writes such
	// an object takes it from its lease, so that it never goes.
	StorageFormat = 3
	// MinReader is the lowest format of a binary that understands all that this one
	// writes.
	MinReader = 1
)

// The formats that a write can need. A store that exists is raised to what is needed, so that
// servers of older formats go on writing as long as they can do no damage.
const (
	objectFormat = 2
	leaseFormat  = 3
)

// Format describes the values in a store. The zero Format describes a store that was
// never written.
type Format struct {
	// StorageFormat is the highest format of any binary that has written to the store.
	// MinReader is the lowest format of a binary that understands all of it.
	StorageFormat, MinReader int64
	// Revision is the mod revision of FormatKey, 0 where it is absent.
	Revision int64
	// Fault says why the value of FormatKey cannot be decoded; empty where it can.
	Fault string

	wrapper *envelope.Format
	// lost says that the store had a format and has none now. No server deletes the key,
	// so another, empty store is in its place.
	lost bool
}

// Writable is nil if this binary may write to the store, else a storage.ErrReadOnly or
// storage.ErrUnavailable that says what to do.
func (f Format) Writable() error {
	switch {
	case f.lost:
		return fmt.Errorf("%w: nothing was written: the store in etcd was emptied, or replaced by an empty one: restore a snapshot into it, "+
			"or, where a new store is meant, start all servers again", storage.ErrUnavailable)
	case f.Fault != "":
		return fmt.Errorf("%w: the storage format of the store (%s) cannot be read: %s: a newer server wrote it or it is damaged: "+
			"see portolan upgrade check", storage.ErrReadOnly, FormatKey, f.Fault)
	case f.StorageFormat > StorageFormat:
		return fmt.Errorf("%w: the store has storage format %d, and this server writes %d at most: a newer server has written to it: "+
			"upgrade this one, see portolan upgrade check", storage.ErrReadOnly, f.StorageFormat, StorageFormat)
	}
	return nil
}

// Readable is nil if this binary understands all that the store may hold. If not, it
// reads all the same and may misread something.
func (f Format) Readable() error {
	if f.MinReader > StorageFormat {
		return fmt.Errorf("the store needs a reader of storage format %d, and this server has %d: "+
			"what is served may not be what was meant: upgrade this server, see portolan upgrade check", f.MinReader, StorageFormat)
	}
	return nil
}

// raisedTo returns the format of the store after a write that needs a format. A store that was
// never written gets the format of this binary.
func (f Format) raisedTo(needed int64) int64 {
	if f.Revision == 0 {
		return StorageFormat
	}
	return max(f.StorageFormat, needed)
}

// raisedValue returns the value of FormatKey that a mutation which needs a format has to write,
// nil for none.
func (f Format) raisedValue(needed int64) ([]byte, error) {
	if f.Revision != 0 && f.StorageFormat >= needed {
		return nil, nil
	}
	out := &envelope.Format{}
	if f.wrapper != nil {
		out = proto.CloneOf(f.wrapper)
	}
	out.StorageFormat, out.MinReader = f.raisedTo(needed), max(out.MinReader, MinReader)
	return envelope.Encode(out)
}

// unchanged compares the revision of the format with the one that was read.
func (f Format) unchanged() clientv3.Cmp {
	return clientv3.Compare(clientv3.ModRevision(FormatKey), "=", f.Revision)
}

// DecodeFormat reads the value of FormatKey. The Fault of the Format says why it
// cannot be read.
func DecodeFormat(kv *mvccpb.KeyValue) Format {
	out := Format{Revision: kv.ModRevision}
	wrapper := &envelope.Format{}
	if err := envelope.Decode(kv.Value, wrapper); err != nil {
		out.Fault = err.Error()
		return out
	}
	out.StorageFormat, out.MinReader, out.wrapper = wrapper.StorageFormat, wrapper.MinReader, wrapper
	return out
}

// Format reads the format of the store.
func (s *Store) Format(ctx context.Context) (Format, error) {
	response, err := s.get(ctx, FormatKey)
	if err != nil {
		return Format{}, fmt.Errorf("read %s: %w", FormatKey, s.readError(err))
	}
	format := Format{}
	for _, kv := range response.Kvs {
		format = DecodeFormat(kv)
	}
	return format, nil
}

// knownFormat returns the format as last read, if a mutation may rely on it.
func (s *Store) knownFormat() (Format, bool) {
	if f := s.format.Load(); f != nil && f.Writable() == nil {
		return *f, true
	}
	return Format{}, false
}
