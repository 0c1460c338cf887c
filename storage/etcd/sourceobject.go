package etcd

import (
	"bytes"
	"errors"
	"fmt"

	"google.golang.org/protobuf/types/known/anypb"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/etcd/envelope"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// EncodeSourceObject returns the value of an object of a source, as an item of a
// registry's bucket: the object of Encode with its resource version and its status. Equal
// objects give equal bytes.
func EncodeSourceObject(object *config.Config) ([]byte, error) {
	out := &envelope.SourceObject{Object: &envelope.Envelope{}, Version: object.ResourceVersion}
	if err := fill(object, nil, out.Object); err != nil {
		return nil, err
	}
	if object.Status != nil {
		status, err := anypb.New(object.Status)
		if err != nil {
			return nil, fmt.Errorf("encode the status of %s: %w", object.Key(), err)
		}
		out.Status = status
	}
	value, err := envelope.Encode(out)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", object.Key(), err)
	}
	return value, nil
}

// DecodeSourceObject is the inverse of EncodeSourceObject. It also reads config.ToJSON,
// which older servers saved. The path is that of the object's key. It fails on fields that
// this binary does not know.
func DecodeSourceObject(path string, value []byte, schemas schema.Set, domain string) (*config.Config, error) {
	key, ok := config.KeyOfPath(path)
	if !ok {
		return nil, errors.New("its key is not that of an object")
	}
	kind := schemas.Kind(key.Kind)
	if kind == nil {
		return nil, errors.New("this server does not know its kind")
	}
	if key.Kind = kind.GroupVersionKind; bytes.HasPrefix(value, []byte("{")) {
		return sourceObjectOfJSON(key, value, schemas, domain)
	}
	saved := &envelope.SourceObject{}
	if err := envelope.Decode(value, saved); err != nil {
		return nil, err
	}
	if fault := faultOf(saved.Object, key); fault != "" {
		return nil, errors.New(fault)
	}
	spec, err := kind.Codec.Unmarshal(saved.Object.Spec)
	switch {
	case err != nil:
		return nil, fmt.Errorf("its spec: %w", err)
	case !kind.Codec.Known(saved.Object.Spec):
		return nil, errors.New("its spec has fields that this server does not know")
	}
	object := assemble(key, saved.Version, saved.Object, domain, spec)
	if saved.Status != nil {
		if object.Status, err = saved.Status.UnmarshalNew(); err != nil {
			return nil, fmt.Errorf("its status: %w", err)
		}
	}
	return object, nil
}

func sourceObjectOfJSON(key config.Key, text []byte, schemas schema.Set, domain string) (*config.Config, error) {
	object, err := config.FromJSON(text, schemas.Type)
	if err != nil {
		return nil, err
	}
	if object.Key() != key {
		return nil, fmt.Errorf("it is the value of another object: %s", object.Key())
	}
	object.Domain = domain
	return object, nil
}
