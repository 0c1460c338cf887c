package schema_test

import (
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"gotest.tools/v3/golden"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// servedFields lists the fields that validation does not call ineffective. With -update the
// test writes it.
const servedFields = "served/fields.txt"

// TestEveryFieldIsServedOrTold sets each field of each message of each kind by itself, to
// each of its sample values. Validation refuses it, warns of it, or the field is in the
// list of those with effect. So a field that a newer API adds fails this test until it is
// refused, warned of or in the list.
func TestEveryFieldIsServedOrTold(t *testing.T) {
	t.Parallel()
	examples := servedExamples(t)
	var silent []string
	for _, k := range schema.Pilot().All() {
		message, ok := k.Codec.New().(proto.Message)
		if !ok {
			continue // a Go struct of this project: no newer API brings it a field
		}
		w := walker{kind: k, examples: examples[k.Kind]}
		if len(w.examples) == 0 {
			w.examples = []*config.Config{empty(k)}
		}
		w.message(message.ProtoReflect().Descriptor(), nil)
		if w.fields == 0 {
			t.Errorf("%s has no fields", k.Kind)
		}
		silent = append(silent, w.silent...)
	}
	got := strings.Join(silent, "\n") + "\n"
	golden.Assert(t, got, servedFields, "serve what is new, or warn of it; then go generate ./storage/schema")
}

// walker collects the fields of a kind that validation does not call ineffective.
type walker struct {
	kind     *schema.Schema
	examples []*config.Config
	fields   int
	silent   []string
}

func (w *walker) message(m protoreflect.MessageDescriptor, path []protoreflect.FieldDescriptor) {
	for i := range m.Fields().Len() {
		fd := m.Fields().Get(i)
		at := append(slices.Clone(path), fd)
		w.fields++
		if values := w.unnoticed(at); len(values) > 0 {
			w.silent = append(w.silent, strings.TrimRight(w.kind.Kind+"."+display(at)+" "+strings.Join(values, " "), " "))
		}
		if n := fd.Message(); n != nil && !fd.IsMap() && n.ParentFile().Package() != "google.protobuf" && !slices.ContainsFunc(path, hasType(n)) {
			w.message(n, at)
		}
	}
}

// unnoticed returns the sample values with which, in some example, validation does not call
// the field ineffective.
func (w *walker) unnoticed(path []protoreflect.FieldDescriptor) []string {
	fd := path[len(path)-1]
	var out []string
	for _, v := range samples(fd) {
		for _, example := range w.examples {
			spec := proto.Clone(example.Spec.(proto.Message))
			v.set(reach(spec.ProtoReflect(), path[:len(path)-1]), fd)
			warnings, err := w.kind.Validate(&config.Config{Meta: example.Meta, Spec: spec})
			if said := append(messages(err), texts(warnings)...); !slices.ContainsFunc(said, saysIneffective) {
				out = append(out, v.name)
				break
			}
		}
	}
	if slices.Equal(out, []string{""}) {
		return []string{""}
	}
	return out
}

func saysIneffective(message string) bool {
	return isNotServed(message) || strings.Contains(message, "set it in the file of --mesh-config") || strings.Contains(message, "not enforced yet") || strings.Contains(message, "is no longer a field") || strings.Contains(message, "is not supported")
}
