package patch

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/structpb"
)

// unknownFields finds the fields of a value at a path that its type does not have. The value can be
// read as one of the type otherwise.
func unknownFields(of protoreflect.MessageDescriptor, value *structpb.Struct, path string) []Finding {
	if of.FullName() == "google.protobuf.Any" {
		return unknownInAny(value, path)
	}
	if ownJSON(of) {
		return nil
	}
	var out []Finding
	for _, name := range slices.Sorted(maps.Keys(value.GetFields())) {
		at := path + "." + name
		field := of.Fields().ByJSONName(name)
		if field == nil {
			field = of.Fields().ByTextName(name)
		}
		switch {
		case field == nil:
			out = append(out, Finding{at, fmt.Sprintf("is no field of %s in Envoy %s: it is left out", of.FullName(), envoyVersion)})
		case field.IsMap():
			if element := field.MapValue().Message(); element != nil {
				entries := value.GetFields()[name].GetStructValue().GetFields()
				for _, key := range slices.Sorted(maps.Keys(entries)) {
					out = append(out, unknownFields(element, entries[key].GetStructValue(), at+"."+key)...)
				}
			}
		case field.Message() == nil:
		case field.IsList():
			for i, element := range value.GetFields()[name].GetListValue().GetValues() {
				out = append(out, unknownFields(field.Message(), element.GetStructValue(), at+"["+strconv.Itoa(i)+"]")...)
			}
		default:
			out = append(out, unknownFields(field.Message(), value.GetFields()[name].GetStructValue(), at)...)
		}
	}
	return out
}

// unknownInAny is unknownFields for a value with a type. It finds nothing in a type that this server
// does not know.
func unknownInAny(value *structpb.Struct, path string) []Finding {
	url := value.GetFields()[typeField].GetStringValue()
	content := &structpb.Struct{Fields: maps.Clone(value.GetFields())}
	delete(content.Fields, typeField)
	if name := url[strings.LastIndexByte(url, '/')+1:]; name == typedStruct || name == oldTypedStruct {
		url, content, path = inTypedStruct(value), value.GetFields()["value"].GetStructValue(), path+".value"
	}
	known, err := protoregistry.GlobalTypes.FindMessageByName(protoreflect.FullName(url[strings.LastIndexByte(url, '/')+1:]))
	if err != nil {
		return nil
	}
	return unknownFields(known.Descriptor(), content, path)
}

// inTypedStruct returns the type of what a TypedStruct holds.
func inTypedStruct(value *structpb.Struct) string {
	for _, name := range []string{"type_url", "typeUrl"} {
		if inner := value.GetFields()[name].GetStringValue(); inner != "" {
			return inner
		}
	}
	return ""
}
