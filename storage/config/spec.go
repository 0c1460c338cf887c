package config

import (
	"encoding/json"
	"fmt"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"
)

// message reports what in raw does not fit a message: every unknown field,
// every value of a wrong type. protojson stops at the first and names no path.
func (o *object) message(path string, md protoreflect.MessageDescriptor, raw json.RawMessage) {
	members := o.members(path, raw, fieldNames(md)...)
	set := map[protoreflect.FullName]string{}
	for _, name := range sortedKeys(members) {
		if o.full() {
			return
		}
		field := fieldPath(path, name)
		fd := fieldByName(md, name)
		if fd == nil {
			o.reportUnknown(path, name, fieldNames(md))
			continue
		}
		if isNull(members[name]) && fd.Message() == nil {
			continue
		}
		if other, ok := set[fd.FullName()]; ok {
			o.fail(field, "is set twice, also as %s", short(other))
		}
		set[fd.FullName()] = name
		if one := fd.ContainingOneof(); one != nil && !one.IsSynthetic() {
			if other, ok := set[one.FullName()]; ok {
				o.fail(field, "excludes %s: set one of the two", short(other))
			}
			set[one.FullName()] = name
		}
		o.field(field, fd, members[name])
	}
}

func fieldNames(md protoreflect.MessageDescriptor) []string {
	names := make([]string, md.Fields().Len())
	for i := range names {
		names[i] = md.Fields().Get(i).JSONName()
	}
	return names
}

func fieldByName(md protoreflect.MessageDescriptor, name string) protoreflect.FieldDescriptor {
	if fd := md.Fields().ByJSONName(name); fd != nil {
		return fd
	}
	return md.Fields().ByTextName(name)
}

func (o *object) field(path string, fd protoreflect.FieldDescriptor, raw json.RawMessage) {
	switch {
	case isNull(raw):
	case fd.IsMap():
		members := o.members(path, raw)
		for _, key := range sortedKeys(members) {
			if o.full() {
				return
			}
			o.value(path+"["+short(key)+"]", fd.MapValue(), members[key])
		}
	case fd.IsList():
		var list []json.RawMessage
		if json.Unmarshal(raw, &list) != nil {
			o.fail(path, "must be a list, is %s", o.shortened(raw))
		}
		for i, item := range list {
			if o.full() {
				return
			}
			o.value(fmt.Sprintf("%s[%d]", path, i), fd, item)
		}
	default:
		o.value(path, fd, raw)
	}
}

// value checks one value of a field; for a list or a map, one element.
func (o *object) value(path string, fd protoreflect.FieldDescriptor, raw json.RawMessage) {
	if md := fd.Message(); md != nil && !isWellKnown(md) {
		o.message(path, md, raw)
		return
	}
	// Decode a message that has this field alone, to see whether the value fits.
	parent := fd.ContainingMessage()
	text := fmt.Sprintf("{%q:%s}", fd.JSONName(), raw)
	if fd.IsList() {
		text = fmt.Sprintf("{%q:[%s]}", fd.JSONName(), raw)
	}
	if parent.IsMapEntry() {
		parent = fd.ContainingMessage().Parent().(protoreflect.MessageDescriptor)
		text = fmt.Sprintf("{%q:{%s:%s}}", mapField(fd).JSONName(), mapKey(fd), raw)
	}
	if protojson.Unmarshal(secondsOnly(parent, []byte(text)), dynamicpb.NewMessage(parent)) == nil {
		return
	}
	if wanted := acceptedJSON(fd); wanted == "a string" {
		o.fail(path, "%s", o.mustBeText(raw))
	} else {
		o.fail(path, "must be %s, is %s", wanted, o.shortened(raw))
	}
}

// isWellKnown says whether a message has a JSON form of its own.
func isWellKnown(md protoreflect.MessageDescriptor) bool {
	return strings.HasPrefix(string(md.FullName()), "google.protobuf.")
}

// mapField returns the map field whose entries have this value.
func mapField(value protoreflect.FieldDescriptor) protoreflect.FieldDescriptor {
	entry := value.ContainingMessage()
	fields := entry.Parent().(protoreflect.MessageDescriptor).Fields()
	for i := range fields.Len() {
		if fields.Get(i).Message() == entry {
			return fields.Get(i)
		}
	}
	return nil
}

// mapKey returns any valid key of the map, in JSON.
func mapKey(value protoreflect.FieldDescriptor) string {
	switch value.ContainingMessage().Fields().ByNumber(1).Kind() {
	case protoreflect.StringKind:
		return `"key"`
	case protoreflect.BoolKind:
		return `"true"`
	default:
		return `"1"`
	}
}

func acceptedJSON(fd protoreflect.FieldDescriptor) string {
	if md := fd.Message(); md != nil {
		switch md.Name() {
		case "Duration":
			return "a duration such as 1.5s, 100ms or 1h"
		case "Timestamp":
			return "a time such as 2026-01-31T12:00:00Z"
		case "Struct":
			return "a mapping"
		}
		if value := md.Fields().ByName("value"); value != nil { // a wrapper
			return acceptedJSON(value)
		}
		return "of another type (" + string(md.FullName()) + ")"
	}
	switch kind := fd.Kind(); kind {
	case protoreflect.EnumKind:
		return "one of " + enumNames(fd.Enum())
	case protoreflect.StringKind:
		return "a string"
	case protoreflect.BytesKind:
		return "a string in base64"
	case protoreflect.BoolKind:
		return "true or false"
	case protoreflect.FloatKind, protoreflect.DoubleKind:
		return "a number"
	case protoreflect.Uint32Kind, protoreflect.Uint64Kind, protoreflect.Fixed32Kind, protoreflect.Fixed64Kind:
		return "a whole number from 0 (" + kind.String() + ")"
	default:
		return "a whole number (" + kind.String() + ")"
	}
}

func enumNames(ed protoreflect.EnumDescriptor) string {
	names := make([]string, ed.Values().Len())
	for i := range names {
		names[i] = string(ed.Values().Get(i).Name())
	}
	return strings.Join(names, ", ")
}

// protoError returns protojson's error without the spaces that vary by build.
func protoError(err error) string {
	text := strings.ReplaceAll(err.Error(), "\u00a0", " ")
	return strings.TrimPrefix(text, "proto: ")
}
