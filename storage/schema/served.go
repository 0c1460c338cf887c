package schema

import (
	"fmt"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// fields says which fields of a message are served, by their names in YAML. A
// field that is not listed has no effect: where it is set, users are warned.
type fields map[string]field

// field is a served field. Where fields is nil, all that it holds is served. A
// refused field may not be set, as to ignore it would be dangerous; refused says
// so to users.
type field struct {
	fields  fields
	refused string
}

// serve lists fields that are served with all they hold.
func serve(names ...string) fields {
	f := make(fields, len(names))
	for _, name := range names {
		f[name] = field{}
	}
	return f
}

// with adds a field of which only some fields are served.
func (f fields) with(name string, of fields) fields {
	f[name] = field{fields: of}
	return f
}

// refuse adds a field that may not be set, and says why.
func (f fields) refuse(name, why string) fields {
	f[name] = field{refused: why}
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
			at.warn("is not served yet and has no effect")
		case f.refused != "":
			at.fail("%s", f.refused)
		case f.fields != nil:
			at.unservedOf(fd, m.Get(fd), f.fields)
		}
	}
}

// unservedOf descends into the message, the messages of a list or those of a
// map.
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
