package schema_test

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/hashicorp/go-multierror"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"gotest.tools/v3/golden"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
)

//go:generate go test -count=1 -run "^(TestTheStatusBoxIsTrue|TestEveryFieldIsServedOrTold)$" . -update

const (
	readme   = "../../README.md"
	boxBegin = "<!-- status: written by `go generate ./storage/schema` -->\n"
	boxEnd   = "<!-- end of status -->\n"
)

// TestTheStatusBoxIsTrue compares the README's table of served fields with the findings of
// validation for every field of every kind. With -update it writes the table.
func TestTheStatusBoxIsTrue(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(readme)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, begins := strings.Cut(string(text), boxBegin)
	was, after, ends := strings.Cut(rest, boxEnd)
	if !begins || !ends {
		t.Fatalf("%s has no status box between %q and %q", readme, boxBegin, boxEnd)
	}
	box := statusBox(t)
	if golden.FlagUpdate() {
		if err := os.WriteFile(readme, []byte(before+boxBegin+box+boxEnd+after), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := gocmp.Diff(was, box); diff != "" {
		t.Errorf("the status box of the README is stale: run go generate ./storage/schema\n%s", diff)
	}
}

// statusBox returns the table of all kinds.
func statusBox(t *testing.T) string {
	t.Helper()
	examples := servedExamples(t)
	var b bytes.Buffer
	b.WriteString("\n| kind | has effect | not yet: `apply` warns | not yet: refused, for security | not yet: refused |\n|---|---|---|---|---|\n")
	for _, k := range schema.Pilot().All() {
		spec, ok := k.Codec.New().(proto.Message)
		if !ok { // all fields of our structs have an effect
			fmt.Fprintf(&b, "| `%s` | all its fields | | | |\n", k.Kind)
			continue
		}
		if len(examples[k.Kind]) == 0 {
			t.Errorf("testdata/served has no example of kind %s", k.Kind)
			continue
		}
		p := prober{t: t, kind: k, examples: examples[k.Kind], found: map[place]*finding{}}
		p.message(spec.ProtoReflect().Descriptor(), nil)
		p.write(&b)
	}
	b.WriteString("\nWhat is refused for security is stored by `portolan serve --accept-unserved`, with a warning and no effect.\n\n")
	return b.String()
}

// servedExamples returns the objects of testdata/served by kind. Validation reports nothing
// about them.
func servedExamples(t *testing.T) map[string][]*config.Config {
	t.Helper()
	const file = "testdata/served/mesh.yaml"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	documents, err := config.Decode(file, text, schema.Pilot().Type)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][]*config.Config{}
	for _, d := range documents {
		out[d.Config.Kind] = append(out[d.Config.Kind], d.Config)
	}
	return out
}

// empty is an object without a field.
func empty(k *schema.Schema) *config.Config {
	return &config.Config{Meta: config.Meta{GroupVersionKind: k.GroupVersionKind, Name: "x", Namespace: "x"}, Spec: k.Codec.New()}
}

// place is the key of a finding: values of one field may have several verdicts.
type place struct {
	field   protoreflect.FullName
	verdict verdict
}

// prober sets one field of an example after the other, and validates the result.
type prober struct {
	t        *testing.T
	kind     *schema.Schema
	examples []*config.Config
	found    map[place]*finding
	top      []string // fields of the spec that have effect
}

// verdict is how validation treats a field.
type verdict int

const (
	served verdict = iota
	warned
	insecure
	refused
)

// finding is the verdict of validation on a field that is not served.
type finding struct {
	parent, name, values string // parent is a path, empty for the spec itself
	verdict              verdict
}

// message probes each field of the message at a path of the spec.
func (p *prober) message(m protoreflect.MessageDescriptor, path []protoreflect.FieldDescriptor) {
	for i := range m.Fields().Len() {
		fd := m.Fields().Get(i)
		at := append(slices.Clone(path), fd)
		found := p.field(at)
		for _, f := range found {
			p.note(fd, f)
		}
		if len(found) > 0 && found[0].values == "" {
			continue
		}
		if len(path) == 0 {
			p.top = append(p.top, "`"+fd.JSONName()+"`")
		}
		if n := fd.Message(); n != nil && !fd.IsMap() && n.ParentFile().Package() != "google.protobuf" && !slices.ContainsFunc(path, hasType(n)) {
			p.message(n, at)
		}
	}
}

func hasType(m protoreflect.MessageDescriptor) func(protoreflect.FieldDescriptor) bool {
	return func(fd protoreflect.FieldDescriptor) bool {
		return fd.Message() != nil && fd.Message().FullName() == m.FullName()
	}
}

// note keeps a finding at its shortest path: the same message has the same fields in
// several places.
func (p *prober) note(fd protoreflect.FieldDescriptor, f *finding) {
	key := place{fd.FullName(), f.verdict}
	if known := p.found[key]; known == nil || len(f.parent) < len(known.parent) {
		p.found[key] = f
	}
}

// field returns what validation finds wrong with a field, one finding for each verdict
// but served. Where some values are served, the findings list the others.
func (p *prober) field(path []protoreflect.FieldDescriptor) []*finding {
	fd := path[len(path)-1]
	bad := map[verdict][]string{}
	values := samples(fd)
	for _, v := range values {
		d := p.decide(path, v)
		bad[d] = append(bad[d], v.name)
	}
	var out []*finding
	for _, d := range []verdict{warned, insecure, refused} {
		if len(bad[d]) == 0 {
			continue
		}
		f := &finding{parent: display(path[:len(path)-1]), name: fd.JSONName(), verdict: d}
		if len(bad[d]) < len(values) || fd.Kind() == protoreflect.EnumKind { // the value 0, which is no sample, is served
			f.values = " " + strings.Join(bad[d], ", ")
		}
		out = append(out, f)
	}
	return out
}

// decide sets the field at a path to a value in each of the examples. The value is served
// if validation does not complain of it in one of them.
func (p *prober) decide(path []protoreflect.FieldDescriptor, v sample) verdict {
	most := served
	for _, example := range p.examples {
		spec := proto.Clone(example.Spec.(proto.Message))
		v.set(reach(spec.ProtoReflect(), path[:len(path)-1]), path[len(path)-1])
		object := &config.Config{Meta: example.Meta, Spec: spec}
		warnings, err := p.kind.Validate(object)
		unserved, _ := p.kind.UnservedSecurity(object)
		switch {
		case slices.ContainsFunc(messages(err), isNotServed):
			most = refused
		case len(unserved) > 0:
			most = max(most, insecure)
		case slices.ContainsFunc(texts(warnings), isNotServed):
			most = max(most, warned)
		default:
			return served
		}
	}
	return most
}

func isNotServed(message string) bool {
	return strings.Contains(message, "not served yet") || strings.Contains(message, "has no effect here")
}

func messages(err error) []string {
	var faults *multierror.Error
	if !errors.As(err, &faults) {
		return nil
	}
	var out []string
	for _, e := range faults.Errors {
		out = append(out, e.Error())
	}
	return out
}

// reach returns the message at a path, with the first item of each list.
func reach(m protoreflect.Message, path []protoreflect.FieldDescriptor) protoreflect.Message {
	for _, fd := range path {
		if !fd.IsList() {
			m = m.Mutable(fd).Message()
			continue
		}
		list := m.Mutable(fd).List()
		if list.Len() == 0 {
			list.AppendMutable()
		}
		m = list.Get(0).Message()
	}
	return m
}

type sample struct {
	name  string
	key   string // in a map
	value func(protoreflect.Message, protoreflect.FieldDescriptor) protoreflect.Value
}

// set sets a field of a message to the value, which is the only element of a list or a map.
func (s sample) set(m protoreflect.Message, fd protoreflect.FieldDescriptor) {
	switch v := s.value(m, fd); {
	case fd.IsMap():
		key := protoreflect.ValueOfString(cmp.Or(s.key, "x"))
		if fd.MapKey().Kind() == protoreflect.Uint32Kind {
			key = protoreflect.ValueOfUint32(1)
		}
		m.Mutable(fd).Map().Set(key.MapKey(), v)
	case fd.IsList():
		m.Mutable(fd).List().Append(v)
	default:
		m.Set(fd, v)
	}
}

// samples returns each value of an enumeration but 0, each protocol, and one value of any
// other field. It keeps a message that exists.
func samples(fd protoreflect.FieldDescriptor) []sample {
	constant := func(name string, v protoreflect.Value) sample {
		return sample{name: name, value: func(protoreflect.Message, protoreflect.FieldDescriptor) protoreflect.Value { return v }}
	}
	kind := fd
	if fd.IsMap() {
		kind = fd.MapValue()
	}
	switch kind.Kind() {
	case protoreflect.MessageKind:
		value := func(m protoreflect.Message, fd protoreflect.FieldDescriptor) protoreflect.Value {
			switch {
			case fd.IsMap():
				return m.Mutable(fd).Map().NewValue()
			case fd.IsList():
				return m.Mutable(fd).List().NewElement()
			}
			return m.Mutable(fd)
		}
		if name := fd.Name(); fd.IsMap() && (name == "headers" || name == "without_headers") {
			const claims = "@request.auth.claims"
			return []sample{{value: value}, {name: "`" + claims + "`", key: claims + ".sub", value: value}}
		}
		return []sample{{value: value}}
	case protoreflect.EnumKind:
		var out []sample
		values := kind.Enum().Values()
		for i := range values.Len() {
			if v := values.Get(i); v.Number() != 0 {
				out = append(out, constant(string(v.Name()), protoreflect.ValueOfEnum(v.Number())))
			}
		}
		return out
	case protoreflect.StringKind:
		if fd.Name() == "protocol" {
			var out []sample
			for _, p := range []string{"HTTP", "HTTP2", "GRPC", "GRPC-WEB", "HTTPS", "TLS", "TCP", "MONGO", "MYSQL", "REDIS", "UDP"} {
				out = append(out, constant(p, protoreflect.ValueOfString(p)))
			}
			return out
		}
		return []sample{constant("", protoreflect.ValueOfString("x"))}
	case protoreflect.BoolKind:
		return []sample{constant("", protoreflect.ValueOfBool(true))}
	case protoreflect.Uint32Kind:
		return []sample{constant("", protoreflect.ValueOfUint32(1))}
	case protoreflect.Uint64Kind:
		return []sample{constant("", protoreflect.ValueOfUint64(1))}
	case protoreflect.Int32Kind:
		return []sample{constant("", protoreflect.ValueOfInt32(1))}
	case protoreflect.Int64Kind:
		return []sample{constant("", protoreflect.ValueOfInt64(1))}
	case protoreflect.DoubleKind:
		return []sample{constant("", protoreflect.ValueOfFloat64(1))}
	case protoreflect.FloatKind:
		return []sample{constant("", protoreflect.ValueOfFloat32(1))}
	case protoreflect.BytesKind:
		return []sample{constant("", protoreflect.ValueOfBytes([]byte("x")))}
	}
	panic(fmt.Sprintf("%s is a %s", fd.FullName(), kind.Kind()))
}

// display writes a path as users know it, http[].route[].
func display(path []protoreflect.FieldDescriptor) string {
	names := make([]string, len(path))
	for i, fd := range path {
		if names[i] = fd.JSONName(); fd.IsList() {
			names[i] += "[]"
		}
	}
	return strings.Join(names, ".")
}

// write writes the line of the kind.
func (p *prober) write(b *bytes.Buffer) {
	line := func(v verdict) string {
		var out []string
		parent := ""
		for _, f := range slices.SortedFunc(maps.Values(p.found), byParent) {
			if f.verdict != v {
				continue
			}
			text := "`" + f.name + "`" + f.values
			if f.parent != parent {
				parent = f.parent
				text = "<br>in `" + parent + "`: " + text
			}
			out = append(out, text)
		}
		return strings.TrimPrefix(strings.ReplaceAll(strings.Join(out, ", "), ", <br>", "<br>"), "<br>")
	}
	fmt.Fprintf(b, "| %s | %s | %s | %s | %s |\n", p.kind.Kind, strings.Join(p.top, ", "), line(warned), line(insecure), line(refused))
}

func byParent(a, b *finding) int {
	return cmp.Or(strings.Compare(a.parent, b.parent), strings.Compare(a.name, b.name))
}
