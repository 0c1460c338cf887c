package etcd

import (
	"bytes"
	"context"
	"fmt"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"

	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/etcd/envelope"
)

// FormatKey holds what the store may hold: a Format. The first mutation of a
// store writes it, and so does the first of a binary whose format is higher.
// Every transaction that changes anything compares its revision, so that no
// older binary writes once a newer one has.
const FormatKey = MetaPrefix + "schema"

// The format of this binary.
const (
	// StorageFormat is what this binary writes. It rises when a binary of the
	// format before would damage what is written. A field or a kind that is only
	// added does not raise it: an older binary keeps what it does not know.
	StorageFormat = 1
	// MinReader is the format that a binary must have to understand all that
	// this one writes.
	MinReader = 1
)

// Format is what a store says of the values in it; the zero Format is that of a
// store to which nobody has written yet.
type Format struct {
	// StorageFormat is the highest format of any binary that has written here,
	// and MinReader the lowest of one that understands all there is.
	StorageFormat, MinReader int64
	// Revision is the mod revision of FormatKey, 0 where it is absent.
	Revision int64
	// Fault says why the value of FormatKey cannot be read, empty where it can.
	Fault string

	wrapper *envelope.Format
}

// Writable is nil if a binary of this format may write to the store, else a
// storage.ErrReadOnly that says what to do.
func (f Format) Writable() error {
	switch {
	case f.Fault != "":
		return fmt.Errorf("%w: the storage format of the store (%s) cannot be read: %s: a newer server wrote it or it is damaged: "+
			"see portolan upgrade check", storage.ErrReadOnly, FormatKey, f.Fault)
	case f.StorageFormat > StorageFormat:
		return fmt.Errorf("%w: the store has storage format %d, and this server writes %d at most: a newer server has written to it: "+
			"upgrade this one, see portolan upgrade check", storage.ErrReadOnly, f.StorageFormat, StorageFormat)
	}
	return nil
}

// Readable is nil if a binary of this format understands all that the store may
// hold. If not, it reads on all the same, and may miss the meaning of something.
func (f Format) Readable() error {
	if f.MinReader > StorageFormat {
		return fmt.Errorf("the store needs a reader of storage format %d, and this server has %d: "+
			"what is served may not be what was meant: upgrade this server, see portolan upgrade check", f.MinReader, StorageFormat)
	}
	return nil
}

// raised returns the value of FormatKey that a mutation has to write, nil where
// the one there is will do.
func (f Format) raised() ([]byte, error) {
	if f.Revision != 0 && f.StorageFormat >= StorageFormat {
		return nil, nil
	}
	out := &envelope.Format{}
	if f.wrapper != nil {
		out = proto.CloneOf(f.wrapper)
	}
	out.StorageFormat, out.MinReader = StorageFormat, max(out.MinReader, MinReader)
	return proto.MarshalOptions{Deterministic: true}.MarshalAppend(bytes.Clone(magic), out)
}

// unchanged is the condition that the format is the one that was read.
func (f Format) unchanged() clientv3.Cmp {
	return clientv3.Compare(clientv3.ModRevision(FormatKey), "=", f.Revision)
}

func decodeFormat(kv *mvccpb.KeyValue) Format {
	out := Format{Revision: kv.ModRevision}
	body, ok := bytes.CutPrefix(kv.Value, magic)
	if !ok {
		out.Fault = fmt.Sprintf("it does not begin with %q", magic)
		return out
	}
	wrapper := &envelope.Format{}
	if err := proto.Unmarshal(body, wrapper); err != nil {
		out.Fault = err.Error()
		return out
	}
	out.StorageFormat, out.MinReader, out.wrapper = wrapper.StorageFormat, wrapper.MinReader, wrapper
	return out
}

// Format reads what the store says of itself.
func (s *Store) Format(ctx context.Context) (Format, error) {
	response, err := s.get(ctx, FormatKey)
	if err != nil {
		return Format{}, fmt.Errorf("read %s: %w", FormatKey, s.readError(err))
	}
	format := Format{}
	for _, kv := range response.Kvs {
		format = decodeFormat(kv)
	}
	return format, nil
}

// knownFormat is the format as it was last read, if a mutation may go by it
// without reading it again.
func (s *Store) knownFormat() (Format, bool) {
	if f := s.format.Load(); f != nil && f.Writable() == nil {
		return *f, true
	}
	return Format{}, false
}
