package objects

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/portolan-mesh/portolan/cmd/portolan/cli"
	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/batch"
	"github.com/portolan-mesh/portolan/storage/config"
)

const editHead = `# Change what is below, save it, and close the editor. Kind, name and namespace stay.
# A file that is closed unchanged or empty changes nothing.
#
`

// editSession is a text that is edited, until it can be written.
type editSession struct {
	opened  []storedOnly // the objects as they were read last
	file    string
	kept    bool   // the file stays, since the user needs it
	head    string // comments for the user, at the top
	text    string // what is below, as the editor opens it
	typed   string // what is below, as the editor was closed
	merged  bool   // the text has changes of others and the user's
	problem error  // why the editor opens again; nil if nothing is wrong
}

func newEditSession(opened []storedOnly) (*editSession, error) {
	file, err := os.CreateTemp("", "portolan-edit-*.yaml")
	if err == nil {
		err = file.Close()
	}
	if err != nil {
		return nil, fmt.Errorf("make a file to edit: %w", err)
	}
	s := &editSession{opened: opened, file: file.Name(), head: editHead}
	s.text, err = editText(cli.MapSlice(opened, func(o storedOnly) *unstructured.Unstructured { return o.object }))
	return s, err
}

func (s *editSession) close() {
	if !s.kept {
		_ = os.Remove(s.file)
	}
}

// cancel says that nothing was changed.
func (s *editSession) cancel(env *environment) error {
	_, err := fmt.Fprintln(env.Stderr, "Edit cancelled, nothing changed.")
	return err
}

// keep keeps what was typed, and adds to an error where that is.
func (s *editSession) keep(env *environment, err error) error {
	if s.isEmpty() || s.isUnchanged() && s.problem == nil && !s.merged {
		return err
	}
	s.kept = true
	if errors.Is(err, context.Canceled) { // the user has interrupted it, and sees nothing else
		_, told := fmt.Fprintf(env.Stderr, "What you have typed is in %s\n", s.file)
		return errors.Join(err, told)
	}
	return fmt.Errorf("%w\nWhat you have typed is in %s", err, s.file)
}

// open writes the text to the file, has the user edit it, and reads it.
func (s *editSession) open(ctx context.Context, env *environment) error {
	if err := os.WriteFile(s.file, []byte(s.head+s.text), 0o600); err != nil {
		return err
	}
	failed := newEditor().open(ctx, env, s.file)
	typed, err := os.ReadFile(s.file)
	if err == nil {
		s.typed = belowHead(string(typed), strings.Count(s.head, "\n"))
	}
	return errors.Join(failed, err)
}

// belowHead returns a text without the comments at its top, of which there were a number of lines.
func belowHead(text string, lines int) string {
	for ; lines > 0 && strings.HasPrefix(text, "#"); lines-- {
		_, text, _ = strings.Cut(text, "\n")
	}
	return text
}

// isEmpty says whether nothing but comments is left.
func (s *editSession) isEmpty() bool {
	for line := range strings.Lines(s.typed) {
		if line = strings.TrimSpace(line); line != "" && line != "---" && !strings.HasPrefix(line, "#") {
			return false
		}
	}
	return true
}

func (s *editSession) isUnchanged() bool { return s.typed == s.text }

// again has the editor open again, with what was typed and a fault above it. problem returns the
// fault, given how many lines are above the text: it names lines of the file.
func (s *editSession) again(problem func(lines int) error) {
	lines := strings.Count(faultHead(problem(0)), "\n")
	s.problem, s.text = problem(lines), s.typed
	s.head = faultHead(s.problem)
}

// faultHead returns the comments about a fault.
func faultHead(err error) string {
	return comment(strings.TrimSpace(exit.Text(err))+"\n\nCorrect it, save, and close the editor. Close it without a change to give up.") + "#\n"
}

// comment returns a text as lines of comments.
func comment(text string) string {
	var out strings.Builder
	for line := range strings.Lines(text) {
		out.WriteString(strings.TrimRight("# "+strings.TrimRight(line, "\n"), " ") + "\n")
	}
	return out.String()
}

// read reads what was typed. It returns what has changed, or a function that returns the faults,
// given how many lines are above the text.
func (s *editSession) read(env *environment) (change, func(lines int) error) {
	if marked(s.typed) {
		return change{}, func(int) error {
			return exit.With(exit.Data, errors.New("nothing was edited: there are lines that begin with <<<<<<<, |||||||, ======= or >>>>>>>: leave of each such part what is to be written"))
		}
	}
	m := s.manifest(env, 0)
	if err := m.err("edited"); err != nil {
		return change{}, func(lines int) error { return s.manifest(env, lines).err("edited") }
	}
	wanted, err := s.changed(m)
	if err != nil {
		return change{}, func(int) error { return err }
	}
	return wanted, nil
}

// manifest reads what was typed, below a number of lines.
func (s *editSession) manifest(env *environment, lines int) *manifest {
	m := &manifest{schemas: env.Schemas, fallback: env.Namespace, sources: []string{""}}
	documents, err := config.Decode("", []byte(strings.Repeat("\n", lines)+s.typed), env.Schemas.Type)
	m.documents = documents
	m.fault(err)
	m.setNamespaces("")
	m.reportDuplicates()
	for _, d := range m.documents {
		i := s.find(d.Config.Key())
		if i < 0 {
			m.fault(d.Fault("", "was not opened: kind, name and namespace stay as they are, and portolan apply makes new objects"))
			continue
		}
		if read := s.opened[i].object.GetResourceVersion(); d.Config.ResourceVersion == "" {
			d.Config.ResourceVersion = read
		} else if d.Config.ResourceVersion != read {
			m.fault(d.Fault("metadata.resourceVersion", fmt.Sprintf("is %s, and the object was opened at %s: leave it as it was", d.Config.ResourceVersion, read)))
		}
	}
	m.validate()
	return m
}

// find returns the index of an object that was opened, -1 if it was not.
func (s *editSession) find(key config.Key) int {
	return slices.IndexFunc(s.opened, func(o storedOnly) bool { return o.key == key })
}

// changed returns what of the text differs from what was opened.
func (s *editSession) changed(m *manifest) (change, error) {
	operations, err := m.operations(batch.Update)
	if err != nil {
		return change{}, err
	}
	var out change
	for i, d := range m.documents {
		typed, err := objectIn(operations[i])
		if err != nil {
			return change{}, err
		}
		if reflect.DeepEqual(editable(typed).Object, editable(s.opened[s.find(d.Config.Key())].object).Object) {
			continue
		}
		out.documents, out.operations = append(out.documents, d), append(out.operations, operations[i])
	}
	return out, nil
}

// shifted returns documents that stand a number of lines further below.
func shifted(documents []config.Document, lines int) []config.Document {
	return cli.MapSlice(documents, func(d config.Document) config.Document {
		d.Line += lines
		return d
	})
}

// editText returns objects as they are edited: without what only the server sets, but with the
// resourceVersion.
func editText(objects []*unstructured.Unstructured) (string, error) {
	var texts []string
	for _, object := range objects {
		text, err := comparableText(object, true)
		if err != nil {
			return "", err
		}
		texts = append(texts, text)
	}
	return strings.Join(texts, "---\n"), nil
}

// editable returns an object without what only the server sets, but with the resourceVersion.
func editable(object *unstructured.Unstructured) *unstructured.Unstructured {
	object = object.DeepCopy()
	for _, f := range []string{"creationTimestamp", "generation", "uid"} {
		unstructured.RemoveNestedField(object.Object, "metadata", f)
	}
	delete(object.Object, "status")
	return object
}

func withoutVersion(object *unstructured.Unstructured) map[string]any {
	object = object.DeepCopy()
	unstructured.RemoveNestedField(object.Object, "metadata", "resourceVersion")
	return object.Object
}

// objectIn returns the object of an operation.
func objectIn(operation batch.Operation) (*unstructured.Unstructured, error) {
	out := &unstructured.Unstructured{}
	if err := out.UnmarshalJSON(operation.Object); err != nil {
		return nil, fmt.Errorf("read an object that was typed: %w", err)
	}
	return out, nil
}
