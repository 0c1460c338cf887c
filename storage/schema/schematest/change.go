package schematest

import (
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
)

type (
	message = protoreflect.Message
	field   = protoreflect.FieldDescriptor
	value   = protoreflect.Value
)

// place is a field of a message, set or not.
type place struct {
	in    message
	field field
}

// isTime says whether a message is a duration, which is drawn as a whole.
func isTime(m message) bool { return m.Descriptor().FullName() == "google.protobuf.Duration" }

// places returns all fields of a message and of its nested messages, in order.
func places(m message) []place {
	if isTime(m) {
		return nil
	}
	var out []place
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		out = append(out, place{m, f})
		if !m.Has(f) {
			continue
		}
		for _, inner := range messagesOf(f, m.Get(f)) {
			out = append(out, places(inner)...)
		}
	}
	return out
}

// messagesOf returns the messages that a field holds, in order.
func messagesOf(f field, v value) []message {
	var out []message
	switch {
	case f.IsMap():
		if f.MapValue().Message() != nil {
			for _, k := range keysOf(v.Map()) {
				out = append(out, v.Map().Get(k).Message())
			}
		}
	case f.Message() == nil:
	case f.IsList():
		for i := range v.List().Len() {
			out = append(out, v.List().Get(i).Message())
		}
	default:
		out = append(out, v.Message())
	}
	return out
}

func keysOf(m protoreflect.Map) []protoreflect.MapKey {
	var keys []protoreflect.MapKey
	m.Range(func(k protoreflect.MapKey, _ value) bool {
		keys = append(keys, k)
		return true
	})
	slices.SortFunc(keys, func(a, b protoreflect.MapKey) int { return strings.Compare(a.String(), b.String()) })
	return keys
}

// change changes one field somewhere in a message.
func (d *Drawer) change(m message) {
	all := places(m)
	set := slices.DeleteFunc(slices.Clone(all), func(p place) bool { return !p.in.Has(p.field) })
	if len(set) > 0 && d.rand.IntN(2) == 0 {
		all = set
	}
	p := all[d.rand.IntN(len(all))]
	switch {
	case p.in.Has(p.field) && d.rand.IntN(8) == 0:
		p.in.Clear(p.field)
	case p.field.IsMap():
		d.changeMap(p)
	case p.field.IsList():
		d.changeList(p)
	default:
		p.in.Set(p.field, d.value(p.field, p.in, 2))
	}
}

func (d *Drawer) changeMap(p place) {
	m := p.in.Mutable(p.field).Map()
	n := 1
	if d.rand.IntN(10) == 0 {
		n = many[d.rand.IntN(len(many))]
	}
	for i := range n {
		key := d.scalar(p.field.MapKey(), string(p.field.Name()))
		if n > 1 {
			key = protoreflect.ValueOfString(fmt.Sprintf("%s%d", key.String(), i))
		}
		if p.field.MapValue().Message() == nil {
			m.Set(key.MapKey(), d.scalar(p.field.MapValue(), string(p.field.Name())))
			continue
		}
		element := m.NewValue()
		d.fill(element.Message(), 2)
		m.Set(key.MapKey(), element)
	}
}

func (d *Drawer) changeList(p place) {
	list := p.in.Mutable(p.field).List()
	n := 1
	if d.rand.IntN(12) == 0 {
		n = many[d.rand.IntN(len(many))]
	}
	for i := range n {
		var element value
		switch {
		case p.field.Message() == nil:
			element = d.scalar(p.field, string(p.field.Name()))
			if n > 1 && p.field.Kind() == protoreflect.StringKind {
				element = protoreflect.ValueOfString(numbered(element.String(), i))
			}
		case list.Len() > 0 && d.rand.IntN(3) > 0:
			element = list.NewElement()
			copyInto(element.Message(), list.Get(d.rand.IntN(list.Len())).Message())
			makeDistinct(element.Message(), i+list.Len())
			d.change(element.Message())
		default:
			element = list.NewElement()
			d.fill(element.Message(), 2)
		}
		if d.rand.IntN(2) == 0 && list.Len() > 0 { // in front
			last := list.Get(0)
			list.Set(0, element)
			element = last
		}
		list.Append(element)
	}
}

// numbered returns a different text for each number. A host stays a host, and a pattern a
// pattern.
func numbered(text string, i int) string {
	if rest, ok := strings.CutPrefix(text, "*."); ok {
		return fmt.Sprintf("*.n%d.%s", i, rest)
	}
	if strings.Contains(text, ".test") {
		return fmt.Sprintf("n%d.%s", i, text)
	}
	return fmt.Sprintf("%s%d", text, i)
}

func copyInto(to, from message) {
	from.Range(func(f field, v value) bool {
		switch {
		case f.IsList():
			for i := range v.List().Len() {
				to.Mutable(f).List().Append(v.List().Get(i))
			}
		case f.IsMap():
			v.Map().Range(func(k protoreflect.MapKey, v value) bool {
				to.Mutable(f).Map().Set(k, v)
				return true
			})
		default:
			to.Set(f, v)
		}
		return true
	})
}

// makeDistinct changes the names and numbers of an element, since elements of one list mostly must
// differ.
func makeDistinct(m message, i int) {
	m.Range(func(f field, v value) bool {
		switch {
		case f.IsList() || f.IsMap():
		case f.Kind() == protoreflect.StringKind && (f.Name() == "name" || f.Name() == "address"):
			if ip := strings.LastIndexByte(v.String(), '.'); f.Name() == "address" && ip > 0 {
				m.Set(f, protoreflect.ValueOfString(fmt.Sprintf("%s.%d", v.String()[:ip], i%256)))
			} else if f.Name() == "name" {
				m.Set(f, protoreflect.ValueOfString(fmt.Sprintf("%s-%d", strings.ToLower(v.String()), i)))
			}
		case f.Kind() == protoreflect.Uint32Kind && f.Name() == "number":
			m.Set(f, protoreflect.ValueOfUint32(uint32(20000+i)))
		case f.Message() != nil && f.Name() == "port":
			makeDistinct(m.Mutable(f).Message(), i)
		}
		return true
	})
}

func (d *Drawer) value(f field, in message, depth int) value {
	if f.Message() == nil {
		return d.scalar(f, string(f.Name()))
	}
	v := in.NewField(f)
	d.fill(v.Message(), depth)
	return v
}

// fill sets some fields of a message.
func (d *Drawer) fill(m message, depth int) {
	if isTime(m) {
		t := times[d.rand.IntN(len(times))]
		proto := m.Interface().(*durationpb.Duration)
		proto.Seconds, proto.Nanos = t[0], int32(t[1])
		return
	}
	fields := m.Descriptor().Fields()
	if depth == 0 || fields.Len() == 0 {
		return
	}
	for range 1 + d.rand.IntN(3) {
		f := fields.Get(d.rand.IntN(fields.Len()))
		switch {
		case f.IsMap():
			d.changeMap(place{m, f})
		case f.IsList():
			d.changeList(place{m, f})
		default:
			m.Set(f, d.value(f, m, depth-1))
		}
	}
}

// scalar draws a value by the kind of a field and by its name.
func (d *Drawer) scalar(f field, name string) value {
	switch f.Kind() {
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(d.rand.IntN(2) == 0)
	case protoreflect.EnumKind:
		values := f.Enum().Values()
		return protoreflect.ValueOfEnum(values.Get(d.rand.IntN(values.Len())).Number())
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(d.text(name, string(f.Name())))
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes([]byte(pick(d, texts)))
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		if name == "ports" || name == "number" || strings.Contains(name, "port") {
			return protoreflect.ValueOfUint32(uint32(pick(d, ports)))
		}
		return protoreflect.ValueOfUint32(uint32(pick(d, unsigned)))
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		return protoreflect.ValueOfUint64(pick(d, unsigned))
	case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Sfixed32Kind:
		return protoreflect.ValueOfInt32(int32(pick(d, signed)))
	case protoreflect.Int64Kind, protoreflect.Sint64Kind, protoreflect.Sfixed64Kind:
		return protoreflect.ValueOfInt64(pick(d, signed))
	case protoreflect.FloatKind:
		return protoreflect.ValueOfFloat32(float32(pick(d, floats)))
	default:
		return protoreflect.ValueOfFloat64(pick(d, floats))
	}
}

func pick[T any](d *Drawer, pool []T) T { return pool[d.rand.IntN(len(pool))] }

func (d *Drawer) text(names ...string) string {
	for _, name := range names {
		switch {
		case strings.Contains(name, "regex") && d.rand.IntN(6) > 0, name == "match" && d.rand.IntN(3) > 0:
			return pick(d, expressions)
		case strings.HasPrefix(name, "host") && d.rand.IntN(6) > 0:
			host := pick(d, hosts)
			if d.rand.IntN(4) == 0 {
				host = []string{"*", ".", "~", Namespace, "~" + Namespace}[d.rand.IntN(5)] + "/" + host
			}
			return host
		}
	}
	return pick(d, texts)
}

// omit removes the i-th field or element of a message, counted depth first; false if there
// are fewer.
func omit(m message, i int) bool {
	for _, p := range places(m) {
		if !p.in.Has(p.field) {
			continue
		}
		if i == 0 {
			p.in.Clear(p.field)
			return true
		}
		i--
		if !p.field.IsList() && !p.field.IsMap() {
			continue
		}
		n := 0
		if p.field.IsMap() {
			keys := keysOf(p.in.Get(p.field).Map())
			if n = len(keys); i < n {
				p.in.Mutable(p.field).Map().Clear(keys[i])
				return true
			}
		} else if n = p.in.Get(p.field).List().Len(); i < n {
			without(p.in.Mutable(p.field).List(), i)
			return true
		}
		i -= n
	}
	return false
}

func without(list protoreflect.List, i int) {
	for ; i < list.Len()-1; i++ {
		list.Set(i, list.Get(i+1))
	}
	list.Truncate(list.Len() - 1)
}
