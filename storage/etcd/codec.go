package etcd

import (
	"bytes"
	"fmt"
	"strconv"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/etcd/envelope"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// magic stands in front of every value: three letters and a format byte, so
// that the encoding can change value by value and a reader can tell.
var magic = []byte("ptl\x01")

// Encode returns the value of an object: magic and envelope. The object must
// be of the canonical version of its kind. writeID identifies the mutation.
// Equal arguments give equal bytes within one binary; across binaries compare
// what Decode returns.
func Encode(object *config.Config, writeID []byte) ([]byte, error) {
	return encode(object, writeID, &envelope.Envelope{})
}

// encode fills in an envelope that may carry fields of a newer writer; those
// stay in it. A spec may be encoded already.
func encode(object *config.Config, writeID []byte, into *envelope.Envelope) ([]byte, error) {
	spec, encoded := object.Spec.(*anypb.Any)
	if !encoded {
		spec = &anypb.Any{}
		if err := anypb.MarshalFrom(spec, object.Spec, proto.MarshalOptions{Deterministic: true}); err != nil {
			return nil, fmt.Errorf("encode the spec of %s: %w", object.Key(), err)
		}
	}
	into.Group, into.Kind = object.Group, object.Kind
	into.Namespace, into.Name = object.Namespace, object.Name
	into.Labels, into.Annotations = object.Labels, object.Annotations
	into.CreationTime = object.CreationTimestamp.Unix()
	into.Uid, into.Generation = object.UID, object.Generation
	into.WriteId = writeID
	into.Spec = spec
	value, err := proto.MarshalOptions{Deterministic: true}.MarshalAppend(bytes.Clone(magic), into)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", object.Key(), err)
	}
	return value, nil
}

// Decode returns the object of a key and value of etcd, under the canonical
// version of its kind, with the mod revision as its resource version. The
// object shares no memory with kv, which is only read. The error is an
// ErrForeignKey or an ErrUndecodable.
func Decode(kv *mvccpb.KeyValue, schemas schema.Set, domain string) (*config.Config, error) {
	key, err := ParseConfigKey(string(kv.Key), schemas)
	if err != nil {
		return nil, err
	}
	object, _, err := decode(kv, key, schemas.Kind(key.Kind), domain)
	return object, err
}

// decode returns the envelope of a value as well. The object and it share maps.
func decode(kv *mvccpb.KeyValue, key config.Key, kind *schema.Schema, domain string) (*config.Config, *envelope.Envelope, error) {
	wrapper, err := open(kv, key)
	if err != nil {
		return nil, nil, err
	}
	spec := kind.NewSpec()
	if err := wrapper.Spec.UnmarshalTo(spec); err != nil {
		return nil, nil, undecodable(kv, fmt.Sprintf("its spec: %v", err))
	}
	return assemble(kv, key, wrapper, domain, spec), wrapper, nil
}

// assemble makes an object of the parts of its value.
func assemble(kv *mvccpb.KeyValue, key config.Key, wrapper *envelope.Envelope, domain string, spec proto.Message) *config.Config {
	return &config.Config{
		Meta: config.Meta{
			GroupVersionKind:  key.Kind,
			Name:              key.Name,
			Namespace:         key.Namespace,
			Domain:            domain,
			Labels:            wrapper.Labels,
			Annotations:       wrapper.Annotations,
			ResourceVersion:   version(kv.ModRevision),
			CreationTimestamp: time.Unix(wrapper.CreationTime, 0).UTC(),
			Generation:        wrapper.Generation,
			UID:               wrapper.Uid,
		},
		Spec: spec,
	}
}

// open reads the envelope of a value and checks that it belongs to key.
func open(kv *mvccpb.KeyValue, key config.Key) (*envelope.Envelope, error) {
	body, ok := bytes.CutPrefix(kv.Value, magic)
	if !ok {
		return nil, undecodable(kv, fmt.Sprintf("it does not begin with %q", magic))
	}
	wrapper := &envelope.Envelope{}
	if err := proto.Unmarshal(body, wrapper); err != nil {
		return nil, undecodable(kv, err.Error())
	}
	if wrapper.Group != key.Kind.Group || wrapper.Kind != key.Kind.Kind ||
		wrapper.Namespace != key.Namespace || wrapper.Name != key.Name {
		return nil, undecodable(kv, fmt.Sprintf("it is the value of another object: %s/%s %s/%s",
			wrapper.Group, wrapper.Kind, wrapper.Namespace, wrapper.Name))
	}
	if wrapper.Spec == nil {
		return nil, undecodable(kv, "it has no spec")
	}
	return wrapper, nil
}

// version makes a revision an opaque version.
func version(revision int64) string { return strconv.FormatInt(revision, 10) }
