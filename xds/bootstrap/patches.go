package bootstrap

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/xds/names"
)

// PatchedJSON renders a bootstrap as JSON does, with what the server says that EnvoyFilters merge into
// it: a Bootstrap in the JSON of protobuf, with the names of fields of Envoy's documentation. Nil is for
// nothing, and then the bytes are those of JSON. Messages of types that this program does not know pass
// as they are.
func PatchedJSON(b *bootstrapv3.Bootstrap, patches *structpb.Struct) ([]byte, error) {
	raw, err := JSON(b)
	if err != nil || len(patches.GetFields()) == 0 {
		return raw, err
	}
	into := map[string]any{}
	if err := json.Unmarshal(raw, &into); err != nil {
		return nil, fmt.Errorf("patch the bootstrap: %w", err)
	}
	merge(into, patches.AsMap(), b.ProtoReflect().Descriptor())
	out, err := json.MarshalIndent(into, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("patch the bootstrap: %w", err)
	}
	return append(out, '\n'), nil
}

// PatchedYAML is PatchedJSON, but as YAML.
func PatchedYAML(b *bootstrapv3.Bootstrap, patches *structpb.Struct) ([]byte, error) {
	raw, err := PatchedJSON(b, patches)
	if err != nil {
		return nil, err
	}
	out, err := config.JSONToYAML(raw)
	if err != nil {
		return nil, fmt.Errorf("render the bootstrap: %w", err)
	}
	return out, nil
}

// merge merges the JSON of a message into that of another of its type, as protobuf merges messages: what
// is set replaces, messages merge, lists grow, and maps get entries. An Any, a Duration and a wrapper are
// values. Both have the names of fields in protobuf.
func merge(into, from map[string]any, of protoreflect.MessageDescriptor) {
	for _, name := range slices.Sorted(maps.Keys(from)) {
		field, value := of.Fields().ByName(protoreflect.Name(name)), from[name]
		if field == nil { // a newer server knows it: Envoy decides
			into[name] = value
			continue
		}
		if choice := field.ContainingOneof(); choice != nil {
			for i := range choice.Fields().Len() {
				if other := choice.Fields().Get(i); other != field {
					delete(into, string(other.Name()))
				}
			}
		}
		was, is := object(into[name]), object(value)
		switch {
		case field.IsList():
			before, _ := into[name].([]any)
			after, _ := value.([]any)
			into[name] = slices.Concat(before, after)
		case was == nil || is == nil:
			into[name] = value
		case field.IsMap() || field.Message().FullName() == "google.protobuf.Struct":
			maps.Copy(was, is)
		case field.Message().ParentFile().Package() == "google.protobuf": // a value
			into[name] = value
		default:
			merge(was, is, field.Message())
		}
	}
}

// object returns a value that is a JSON object, nil for others.
func object(value any) map[string]any {
	out, _ := value.(map[string]any)
	return out
}

// Guard returns what patches say of the bootstrap, without what the machine's owner decides: who the
// proxy is, which servers it trusts, who may command it and which code it loads. It names what it left
// out, in order.
func Guard(patches *structpb.Struct) (*structpb.Struct, []string) {
	out := &structpb.Struct{Fields: map[string]*structpb.Value{}}
	var left []string
	for _, name := range slices.Sorted(maps.Keys(patches.GetFields())) {
		value := patches.GetFields()[name]
		if names.GuardedBootstrap(name) {
			left = append(left, name)
			continue
		}
		if name == "static_resources" {
			var without []string
			value, without = guardClusters(value)
			left = append(left, without...)
		}
		out.Fields[name] = value
	}
	return out, left
}

// guardClusters is Guard for static resources.
func guardClusters(resources *structpb.Value) (*structpb.Value, []string) {
	fields := maps.Clone(resources.GetStructValue().GetFields())
	var left []string
	var rest []*structpb.Value
	for _, one := range fields["clusters"].GetListValue().GetValues() {
		if name := one.GetStructValue().GetFields()["name"].GetStringValue(); names.GuardedCluster(name) {
			left = append(left, "the cluster "+name)
		} else {
			rest = append(rest, one)
		}
	}
	if len(left) == 0 {
		return resources, nil
	}
	fields["clusters"] = structpb.NewListValue(&structpb.ListValue{Values: rest})
	return structpb.NewStructValue(&structpb.Struct{Fields: fields}), left
}
