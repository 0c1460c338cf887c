package patch

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/structpb"
)

const (
	typeField      = "@type"
	typeURLPrefix  = "type.googleapis.com/"
	typedStruct    = "xds.type.v3.TypedStruct"
	oldTypedStruct = "udpa.type.v1.TypedStruct"
)

// decoder reads values of patches.
type decoder struct {
	// opaque are the types that this server does not know and passes on, with their paths.
	opaque []Finding
}

// decode reads a value into a message. The error names the field, as a path that begins with path.
func (d *decoder) decode(m proto.Message, value *structpb.Struct, path string) error {
	resolved, err := d.resolve(value, path)
	if err != nil {
		return err
	}
	return d.read(m, resolved, path)
}

func (d *decoder) read(m proto.Message, value *structpb.Struct, path string) error {
	text, err := protojson.Marshal(value)
	if err == nil {
		err = protojson.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(text, m)
	}
	if err != nil {
		return fmt.Errorf("%s is no %s: %s", path, m.ProtoReflect().Descriptor().FullName(), plain(err))
	}
	return nil
}

// where is what protojson says of itself, and of the place in a text that is not the user's.
var where = regexp.MustCompile(`^proto:[\s\x{a0}]+|\(line \d+:\d+\):[\s\x{a0}]*`)

func plain(err error) string { return where.ReplaceAllString(err.Error(), "") }

// resolve returns a value whose @types this server knows. It reads what has one by itself, so that
// an error names the place.
func (d *decoder) resolve(value *structpb.Struct, path string) (*structpb.Struct, error) {
	out := &structpb.Struct{Fields: make(map[string]*structpb.Value, len(value.GetFields()))}
	for _, name := range slices.Sorted(maps.Keys(value.GetFields())) {
		member, err := d.resolveValue(value.GetFields()[name], path+"."+name)
		if err != nil {
			return nil, err
		}
		out.Fields[name] = member
	}
	url := out.GetFields()[typeField].GetStringValue()
	if url == "" {
		return out, nil
	}
	return d.typed(out, url, path)
}

func (d *decoder) resolveValue(value *structpb.Value, path string) (*structpb.Value, error) {
	switch kind := value.GetKind().(type) {
	case *structpb.Value_StructValue:
		member, err := d.resolve(kind.StructValue, path)
		if err != nil {
			return nil, err
		}
		return structpb.NewStructValue(member), nil
	case *structpb.Value_ListValue:
		list := &structpb.ListValue{}
		for i, one := range kind.ListValue.GetValues() {
			element, err := d.resolveValue(one, path+"["+strconv.Itoa(i)+"]")
			if err != nil {
				return nil, err
			}
			list.Values = append(list.Values, element)
		}
		return structpb.NewListValue(list), nil
	}
	return value, nil
}

// typed reads a value with a type. A TypedStruct of a type that this server knows becomes a value
// of that type, which Envoy makes of it anyway, so that it can be checked and merged.
func (d *decoder) typed(value *structpb.Struct, url, path string) (*structpb.Struct, error) {
	name := protoreflect.FullName(url[strings.LastIndexByte(url, '/')+1:])
	known, err := protoregistry.GlobalTypes.FindMessageByName(name)
	switch {
	case name == typedStruct, name == oldTypedStruct:
		inner := inTypedStruct(value)
		if inner == "" {
			return nil, fmt.Errorf("%s.type_url is missing: a TypedStruct says of which type its value is", path)
		}
		out := proto.CloneOf(value.GetFields()["value"].GetStructValue())
		if out.GetFields() == nil {
			out = &structpb.Struct{Fields: map[string]*structpb.Value{}}
		}
		out.Fields[typeField] = structpb.NewStringValue(inner)
		return d.resolve(out, path+".value")
	case err == nil:
		content := proto.CloneOf(value)
		if !ownJSON(known.Descriptor()) {
			delete(content.Fields, typeField)
			return value, d.read(known.New().Interface(), content, path)
		}
		return value, nil
	case strings.HasPrefix(string(name), "envoy."):
		return nil, fmt.Errorf("%s.%s is %s, which Envoy %s does not know%s", path, typeField, url, envoyVersion, hint(string(name)))
	}
	d.opaque = append(d.opaque, Finding{path + "." + typeField, fmt.Sprintf("is %s, which a stock Envoy %s does not know: it is passed on unread", url, envoyVersion)})
	content := proto.CloneOf(value)
	delete(content.Fields, typeField)
	return &structpb.Struct{Fields: map[string]*structpb.Value{
		typeField:  structpb.NewStringValue(typeURLPrefix + typedStruct),
		"type_url": structpb.NewStringValue(url),
		"value":    structpb.NewStructValue(content),
	}}, nil
}

// envoyVersion is the version of Envoy whose API the server is built with.
const envoyVersion = "1.40"

// oldVersion finds the part of a type's name that says that it is of Envoy's API v2.
var oldVersion = regexp.MustCompile(`\.v[12](alpha\d?|beta\d?)?\.`)

func hint(name string) string {
	if oldVersion.MatchString(name) || strings.HasPrefix(name, "envoy.api.v2.") {
		return ": it is of Envoy's API v2, and API v3 has another name for it"
	}
	return ": mend the name"
}

// ownJSON says whether a message has a JSON form of its own, which is under "value" in an Any.
func ownJSON(m protoreflect.MessageDescriptor) bool {
	return m.ParentFile().Package() == "google.protobuf" && m.Name() != "Empty"
}
