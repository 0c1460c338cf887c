package etcd

import (
	"fmt"
	"hash/fnv"
	"strconv"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/etcd/envelope"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// Encode returns the value of an object. The object must be of the canonical version
// of its kind. writeID identifies the mutation. Equal arguments give equal bytes
// within one binary; across binaries compare what Decode returns.
func Encode(object *config.Config, writeID []byte) ([]byte, error) {
	return encode(object, writeID, &envelope.Envelope{})
}

// encode returns the value of an object, with what fill keeps of an envelope.
func encode(object *config.Config, writeID []byte, into *envelope.Envelope) ([]byte, error) {
	if err := fill(object, writeID, into); err != nil {
		return nil, err
	}
	value, err := envelope.Encode(into)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", object.Key(), err)
	}
	return value, nil
}

// fill fills in an envelope, and keeps the fields of a newer writer in it and in its
// spec. The spec of the object may be encoded already.
func fill(object *config.Config, writeID []byte, into *envelope.Envelope) error {
	spec, encoded := object.Spec.(*anypb.Any)
	if !encoded {
		value, err := config.MarshalSpec(object.Spec, into.Spec.GetValue())
		if err != nil {
			return fmt.Errorf("encode the spec of %s: %w", object.Key(), err)
		}
		spec = &anypb.Any{TypeUrl: config.SpecType(object.Spec), Value: value}
	}
	into.Group, into.Kind = object.Group, object.Kind
	into.Namespace, into.Name = object.Namespace, object.Name
	into.Labels, into.Annotations = object.Labels, object.Annotations
	into.OwnerReferences = storedOwners(object.OwnerReferences)
	into.ManagedFields = storedManagers(object.ManagedFields)
	into.CreationTime = object.CreationTimestamp.Unix()
	into.Uid, into.Generation = object.UID, object.Generation
	into.WriteId = writeID
	into.Spec = spec
	into.Written, into.WrittenOf = []byte(object.AsWritten()), 0
	if len(into.Written) > 0 {
		into.WrittenOf = hashOf(spec.Value)
	}
	return nil
}

// Decode decodes an object, under the canonical version of its kind, with the mod
// revision as its resource version. The object shares no memory with kv. The error is
// an ErrForeignKey or an ErrUndecodable.
func Decode(kv *mvccpb.KeyValue, schemas schema.Set, domain string) (*config.Config, error) {
	key, err := ParseConfigKey(string(kv.Key), schemas)
	if err != nil {
		return nil, err
	}
	object, _, err := decode(kv, key, schemas.Kind(key.Kind), domain)
	return object, err
}

// decode is like Decode of a known key, and returns the envelope too. The object and
// the envelope share maps.
func decode(kv *mvccpb.KeyValue, key config.Key, kind *schema.Schema, domain string) (*config.Config, *envelope.Envelope, error) {
	wrapper, err := openObject(kv, key)
	if err != nil {
		return nil, nil, err
	}
	spec, err := kind.Codec.Unmarshal(wrapper.Spec)
	if err != nil {
		return nil, nil, undecodable(kv, fmt.Sprintf("its spec: %v", err))
	}
	return assemble(key, version(kv.ModRevision), wrapper, domain, spec), wrapper, nil
}

// assemble makes an object of the parts of its value.
func assemble(key config.Key, version string, wrapper *envelope.Envelope, domain string, spec any) *config.Config {
	out := &config.Config{
		Meta: config.Meta{
			GroupVersionKind:  key.Kind,
			Name:              key.Name,
			Namespace:         key.Namespace,
			Domain:            domain,
			Labels:            wrapper.Labels,
			Annotations:       wrapper.Annotations,
			OwnerReferences:   owners(wrapper.OwnerReferences),
			ManagedFields:     managers(wrapper.ManagedFields),
			ResourceVersion:   version,
			CreationTimestamp: time.Unix(wrapper.CreationTime, 0).UTC(),
			Generation:        wrapper.Generation,
			UID:               wrapper.Uid,
		},
		Spec: spec,
	}
	if len(wrapper.Written) > 0 && wrapper.WrittenOf == hashOf(wrapper.Spec.GetValue()) {
		out.SetWritten(string(wrapper.Written))
	}
	return out
}

// hashOf returns the FNV-1a hash of the bytes of a spec.
func hashOf(spec []byte) uint64 {
	h := fnv.New64a()
	_, _ = h.Write(spec)
	return h.Sum64()
}

func storedOwners(of []metav1.OwnerReference) []*envelope.OwnerReference {
	var out []*envelope.OwnerReference
	for _, o := range of {
		out = append(out, &envelope.OwnerReference{
			ApiVersion: o.APIVersion, Kind: o.Kind, Name: o.Name, Uid: string(o.UID),
			Controller: o.Controller, BlockOwnerDeletion: o.BlockOwnerDeletion,
		})
	}
	return out
}

func owners(stored []*envelope.OwnerReference) []metav1.OwnerReference {
	var out []metav1.OwnerReference
	for _, o := range stored {
		out = append(out, metav1.OwnerReference{
			APIVersion: o.ApiVersion, Kind: o.Kind, Name: o.Name, UID: types.UID(o.Uid),
			Controller: o.Controller, BlockOwnerDeletion: o.BlockOwnerDeletion,
		})
	}
	return out
}

func storedManagers(of []metav1.ManagedFieldsEntry) []*envelope.ManagedFields {
	var out []*envelope.ManagedFields
	for _, m := range of {
		one := &envelope.ManagedFields{
			Manager: m.Manager, Operation: string(m.Operation), ApiVersion: m.APIVersion, FieldsType: m.FieldsType, Subresource: m.Subresource,
		}
		if m.Time != nil {
			one.Time = m.Time.UnixMilli()
		}
		if m.FieldsV1 != nil {
			one.Fields = m.FieldsV1.GetRawBytes()
		}
		out = append(out, one)
	}
	return out
}

func managers(stored []*envelope.ManagedFields) []metav1.ManagedFieldsEntry {
	var out []metav1.ManagedFieldsEntry
	for _, m := range stored {
		one := metav1.ManagedFieldsEntry{
			Manager: m.Manager, Operation: metav1.ManagedFieldsOperationType(m.Operation), APIVersion: m.ApiVersion,
			FieldsType: m.FieldsType, Subresource: m.Subresource,
		}
		if m.Time != 0 {
			one.Time = &metav1.Time{Time: time.UnixMilli(m.Time)}
		}
		if len(m.Fields) > 0 {
			one.FieldsV1 = metav1.NewFieldsV1(string(m.Fields))
		}
		out = append(out, one)
	}
	return out
}

// open decodes a value. The error is an ErrUndecodable.
func open(kv *mvccpb.KeyValue, into proto.Message) error {
	if err := envelope.Decode(kv.Value, into); err != nil {
		return undecodable(kv, err.Error())
	}
	return nil
}

// openObject decodes the value of an object and checks that it belongs to key.
func openObject(kv *mvccpb.KeyValue, key config.Key) (*envelope.Envelope, error) {
	wrapper := &envelope.Envelope{}
	if err := open(kv, wrapper); err != nil {
		return nil, err
	}
	if fault := faultOf(wrapper, key); fault != "" {
		return nil, undecodable(kv, fault)
	}
	return wrapper, nil
}

// faultOf says why an envelope is not the one of an object; empty if it is.
func faultOf(wrapper *envelope.Envelope, key config.Key) string {
	switch {
	case wrapper.GetGroup() != key.Kind.Group || wrapper.GetKind() != key.Kind.Kind ||
		wrapper.GetNamespace() != key.Namespace || wrapper.GetName() != key.Name:
		return fmt.Sprintf("it is the value of another object: %s/%s %s/%s",
			wrapper.GetGroup(), wrapper.GetKind(), wrapper.GetNamespace(), wrapper.GetName())
	case wrapper.GetSpec() == nil:
		return "it has no spec"
	}
	return ""
}

// version returns a revision as an opaque version.
func version(revision int64) string { return strconv.FormatInt(revision, 10) }
