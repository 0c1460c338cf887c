package schematest

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// Note is a kind of the core group whose spec is a Go struct. Tests use it for all
// kinds that are not Istio's: it must work in stores, the config API and commands like
// any kind.
var Note = config.GroupVersionKind{Version: "v1", Kind: "Note"}

// NoteSpec is the spec of a Note.
type NoteSpec struct {
	Title    string            `json:"title,omitempty"`
	Lines    []Line            `json:"lines,omitempty"`
	Tags     map[string]string `json:"tags,omitempty"`
	Priority *int32            `json:"priority,omitempty"`
	Due      *metav1.Time      `json:"due,omitempty"`
	Seal     []byte            `json:"seal,omitempty"`
	Weight   float64           `json:"weight,omitempty"`
	Pinned   bool              `json:"pinned,omitempty"`
}

// Line is a line of a Note.
type Line struct {
	Text string `json:"text,omitempty"`
	Done bool   `json:"done,omitempty"`
}

// Kinds returns the kinds of the mesh, Note and Box.
func Kinds() schema.Set {
	return schema.NewSet(append(schema.Pilot().All(), note(), box())...)
}

func note() *schema.Schema {
	return &schema.Schema{
		GroupVersionKind: Note, Versions: []string{"v1"},
		Plural: "notes", Singular: "note", ShortNames: []string{"nt"},
		Codec: config.JSON[NoteSpec](), Check: checkNote,
	}
}

func checkNote(c *config.Config, r *schema.Report) {
	spec := c.Spec.(*NoteSpec)
	if spec.Title == "" {
		r.Fault("spec.title", "is missing: say what the note is about")
	}
	if spec.Priority != nil && *spec.Priority < 0 {
		r.Fault("spec.priority", "must not be negative, is %d", *spec.Priority)
	}
	if spec.Pinned {
		r.Warn("spec.pinned", "is not served yet and has no effect")
	}
}

// NewNote returns a Note as a user would write it.
func NewNote(namespace, name, title string, lines ...string) *config.Config {
	spec := &NoteSpec{Title: title}
	for _, text := range lines {
		spec.Lines = append(spec.Lines, Line{Text: text})
	}
	return &config.Config{
		Meta: config.Meta{GroupVersionKind: Note, Namespace: namespace, Name: name, Labels: map[string]string{"app": name}},
		Spec: spec,
	}
}
