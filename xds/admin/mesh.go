package admin

import (
	"bytes"
	"encoding/json"
	"net/http"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portolan-mesh/portolan/storage/refusal"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/meshconfig"
)

// MeshPath is the path of a Mesh.
const MeshPath = "/apis/portolan.io/v1/mesh"

// Mesh is the mesh configuration in effect on a server. Its JSON form is an API.
type Mesh struct {
	metav1.TypeMeta `json:",inline"`
	// Revision is the revision of the store that it is as of.
	Revision int64 `json:"revision"`
	// Fields are the fields of MeshConfig that are set, in the order of their declaration.
	Fields []MeshField `json:"fields"`
}

// MeshField is one field of the mesh configuration.
type MeshField struct {
	Name string `json:"name"`
	// Value is its value, as MeshConfig writes it.
	Value json.RawMessage `json:"value"`
	// From says what sets it: object, file or default. What an object shares with the file, such as
	// defaultConfig, is from the object.
	From string `json:"from"`
}

// The values of MeshField.From.
const (
	FromObject  = "object"
	FromFile    = "file"
	FromDefault = "default"
)

// ServeMesh serves the Mesh of a server.
func ServeMesh(source interface{ Context() *mesh.PushContext }) func(*http.Request) (any, error) {
	return func(*http.Request) (any, error) {
		push := source.Context()
		if push == nil {
			return nil, refusal.Starting("the server has not read the configuration yet: try again in a moment")
		}
		return meshOf(push)
	}
}

func meshOf(push *mesh.PushContext) (*Mesh, error) {
	out := &Mesh{TypeMeta: metav1.TypeMeta{APIVersion: "portolan.io/v1", Kind: "Mesh"}, Revision: push.Revision()}
	effective, usual, set := push.MeshConfig(), meshconfig.Default().ProtoReflect(), (&meshv1alpha1.MeshConfig{}).ProtoReflect()
	if object := mesh.MeshConfigOf(push.Inputs().Configs, effective.GetRootNamespace()); object != nil {
		set = object.Spec.(*meshv1alpha1.MeshConfig).ProtoReflect()
	}
	fields := usual.Descriptor().Fields()
	for i := range fields.Len() {
		field := fields.Get(i)
		if !effective.ProtoReflect().Has(field) {
			continue
		}
		one := only(effective.ProtoReflect(), field)
		text, err := protojson.Marshal(one)
		if err != nil {
			return nil, err
		}
		var members map[string]json.RawMessage
		if err := json.Unmarshal(text, &members); err != nil {
			return nil, err
		}
		var value bytes.Buffer
		if err := json.Compact(&value, members[field.JSONName()]); err != nil {
			return nil, err
		}
		from := FromFile
		switch {
		case set.Has(field):
			from = FromObject
		case proto.Equal(one, only(usual, field)):
			from = FromDefault
		}
		out.Fields = append(out.Fields, MeshField{Name: field.JSONName(), Value: value.Bytes(), From: from})
	}
	return out, nil
}

// only returns a MeshConfig that has one field of another.
func only(of protoreflect.Message, field protoreflect.FieldDescriptor) *meshv1alpha1.MeshConfig {
	out := &meshv1alpha1.MeshConfig{}
	if of.Has(field) {
		out.ProtoReflect().Set(field, of.Get(field))
	}
	return out
}
