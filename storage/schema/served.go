package schema

import (
	"encoding/json"
	"fmt"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// fields lists the fields of a message that are served, by their names in YAML. Any
// other field has no effect, and users who set it get a warning.
type fields map[string]field

// field is a served field. If fields is nil, everything in it is served. A refused
// field must not be set, because ignoring it would be dangerous; refused is the message
// to users. An idle field has no effect on machines, and idle says why.
type field struct {
	fields        fields
	refused, idle string
}

// serve lists fields that are served with all they hold.
func serve(names ...string) fields {
	f := make(fields, len(names))
	for _, name := range names {
		f[name] = field{}
	}
	return f
}

// with adds a field whose message is served in part.
func (f fields) with(name string, of fields) fields {
	f[name] = field{fields: of}
	return f
}

// refuse adds a field that may not be set, and says why.
func (f fields) refuse(name, why string) fields {
	f[name] = field{refused: why}
	return f
}

// without adds a field that means nothing to machines, and says why.
func (f fields) without(name, why string) fields {
	f[name] = field{idle: why}
	return f
}

// unserved reports every field that is set in a message and not served.
func (c checker) unserved(m protoreflect.Message, served fields) {
	all := m.Descriptor().Fields()
	for i := range all.Len() {
		fd := all.Get(i)
		if !m.Has(fd) {
			continue
		}
		at := c.at(fd.JSONName())
		switch f, ok := served[fd.JSONName()]; {
		case !ok:
			at.notServed("is not served yet and has no effect")
		case f.refused != "":
			at.fail("%s", f.refused)
		case f.idle != "":
			at.notServed("has no effect: %s", f.idle)
		case f.fields != nil:
			at.unservedOf(fd, m.Get(fd), f.fields)
		}
	}
}

// unservedOf descends into a message, and into the messages of a list or a map.
func (c checker) unservedOf(fd protoreflect.FieldDescriptor, v protoreflect.Value, served fields) {
	switch {
	case fd.IsList():
		for i := range v.List().Len() {
			c.index(i).unserved(v.List().Get(i).Message(), served)
		}
	case fd.IsMap():
		panic(fmt.Sprintf("schema: %s is a map: serve it whole", fd.FullName()))
	default:
		c.unserved(v.Message(), served)
	}
}

// unservedOfStruct is unserved for a Go struct with JSON tags.
func (c checker) unservedOfStruct(spec any, served fields) {
	var members map[string]any
	if text, err := json.Marshal(spec); err == nil && json.Unmarshal(text, &members) == nil {
		c.unservedMembers(members, served)
	}
}

func (c checker) unservedMembers(members map[string]any, served fields) {
	for _, name := range sortedKeys(members) {
		at := c.at(name)
		switch f, ok := served[name]; {
		case !ok:
			at.notServed("is not served yet and has no effect")
		case f.refused != "":
			at.fail("%s", f.refused)
		case f.fields != nil:
			at.unservedValue(members[name], f.fields)
		}
	}
}

// unservedValue descends into a mapping, or the mappings of a list.
func (c checker) unservedValue(value any, served fields) {
	switch of := value.(type) {
	case map[string]any:
		c.unservedMembers(of, served)
	case []any:
		for i := range of {
			c.index(i).unservedValue(of[i], served)
		}
	}
}
