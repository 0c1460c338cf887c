package openapi

import (
	"cmp"
	"math"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// message returns the schema of the values of a message in JSON: a reference, or the form of
// a well-known type.
func (d *definer) message(m protoreflect.MessageDescriptor) spec.Schema {
	if known, ok := d.wellKnown(m); ok {
		return known
	}
	name := messageName(m)
	if _, ok := d.definitions[name]; !ok {
		out := &spec.Schema{}
		d.definitions[name] = out // before its fields, since a message may contain itself
		table := tableName(m)
		fields := map[string]spec.Schema{}
		for i := range m.Fields().Len() {
			fd := m.Fields().Get(i)
			fields[fd.JSONName()] = describedAs(new(d.field(fd)), described().text(table, fd.JSONName()))
		}
		d.name(name, table, fields)
		*out = spec.Schema{SchemaProps: spec.SchemaProps{
			Type: []string{"object"}, Description: described().text(table, ""), Properties: fields, Required: requiredFields[table],
		}}
	}
	return *spec.RefSchema(definitionPrefix + name)
}

// field returns the schema of a field.
func (d *definer) field(fd protoreflect.FieldDescriptor) spec.Schema {
	switch {
	case fd.IsMap():
		return *spec.MapProperty(new(d.value(fd.MapValue())))
	case fd.IsList():
		list := *spec.ArrayProperty(new(d.value(fd)))
		key := listKeys[fd.FullName()]
		if m := fd.Message(); m != nil && m.FullName() == conditionName {
			key = "type"
		}
		if key != "" {
			list.Extensions = spec.Extensions{listExtension: "map", keysExtension: []any{key}}
		}
		return list
	}
	return d.value(fd)
}

// listKeys are the fields by which Istio's definitions tell the elements of a list apart
// (x-kubernetes-list-map-keys). All other lists are one value each.
var listKeys = map[protoreflect.FullName]string{
	"istio.networking.v1alpha3.ServiceEntry.ports":               "name",
	"istio.extensions.v1alpha1.WasmPlugin.TrafficSelector.ports": "number",
	"istio.extensions.v1alpha1.VmConfig.env":                     "name",
}

const (
	// conditionName is the message of conditions, of which an object has one of each type.
	conditionName = "istio.meta.v1alpha1.IstioCondition"
	// generationName is the field that package config writes as a number.
	generationName = "observedGeneration"
)

// value returns the schema of one value of a field.
func (d *definer) value(fd protoreflect.FieldDescriptor) spec.Schema {
	switch fd.Kind() {
	case protoreflect.MessageKind, protoreflect.GroupKind:
		return d.message(fd.Message())
	case protoreflect.EnumKind:
		return enum(fd.Enum())
	case protoreflect.Int64Kind, protoreflect.Sint64Kind, protoreflect.Sfixed64Kind:
		if fd.JSONName() == generationName {
			return *spec.Int64Property()
		}
	}
	return scalar(fd.Kind())
}

func enum(e protoreflect.EnumDescriptor) spec.Schema {
	if e.FullName() == "google.protobuf.NullValue" {
		return spec.Schema{SchemaProps: spec.SchemaProps{Nullable: true}}
	}
	out := *spec.StringProperty()
	for i := range e.Values().Len() {
		out.Enum = append(out.Enum, string(e.Values().Get(i).Name()))
	}
	return out
}

// scalar returns the schema of a number, a string, a boolean or bytes. protojson writes the
// numbers of 64 bits as strings, and reads both.
func scalar(kind protoreflect.Kind) spec.Schema {
	switch kind {
	case protoreflect.BoolKind:
		return *spec.BooleanProperty()
	case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Sfixed32Kind:
		return *spec.Int32Property()
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		out := *spec.Int64Property()
		out.Minimum, out.Maximum = new(0.0), new(float64(math.MaxUint32))
		return out
	case protoreflect.FloatKind:
		return *spec.Float32Property()
	case protoreflect.DoubleKind:
		return *spec.Float64Property()
	case protoreflect.BytesKind:
		return *spec.StrFmtProperty("byte")
	case protoreflect.StringKind:
		return *spec.StringProperty()
	default: // numbers of 64 bits; values have no messages and no enums
		return extended(spec.Schema{}, eitherExtension)
	}
}

// wellKnown returns the schema of a message that has a form of its own in JSON.
func (d *definer) wellKnown(m protoreflect.MessageDescriptor) (spec.Schema, bool) {
	switch m.FullName() {
	case "google.protobuf.Duration", "google.protobuf.FieldMask":
		return *spec.StringProperty(), true
	case "google.protobuf.Timestamp":
		return *spec.DateTimeProperty(), true
	case "google.protobuf.Struct", "google.protobuf.Any":
		return anyObject(), true
	case "google.protobuf.Value":
		return anyValue(), true
	case "google.protobuf.ListValue":
		return *spec.ArrayProperty(new(anyValue())), true
	}
	if m.ParentFile().Path() == "google/protobuf/wrappers.proto" {
		out := scalar(m.Fields().ByName("value").Kind())
		out.Nullable = true
		return out, true
	}
	return spec.Schema{}, false
}

func anyObject() spec.Schema {
	return extended(spec.Schema{SchemaProps: spec.SchemaProps{Type: []string{"object"}}}, unknownExtension)
}

func anyValue() spec.Schema { return extended(spec.Schema{}, unknownExtension) }

// extended returns a schema with an extension that is true.
func extended(s spec.Schema, extension string) spec.Schema {
	s.Extensions = spec.Extensions{extension: true}
	return s
}

// messageName returns the name of the definition of a message. A message of istio.io/api is
// named by that module: its version is no API version.
func messageName(m protoreflect.MessageDescriptor) string {
	name := string(m.FullName())
	if rest, ok := strings.CutPrefix(name, "istio."); ok {
		return "io.istio.api." + rest
	}
	return name
}

// tableName returns the name of a message in the tables of descriptions and of required
// fields: networking.HTTPRoute for istio.networking.v1alpha3.HTTPRoute.
func tableName(m protoreflect.MessageDescriptor) string {
	inPackage := string(m.ParentFile().Package())
	rest := strings.TrimPrefix(string(m.FullName()), inPackage+".")
	of, _, _ := strings.Cut(strings.TrimPrefix(inPackage, "istio."), ".")
	return cmp.Or(of, inPackage) + "." + rest
}
