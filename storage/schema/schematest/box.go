package schematest

import (
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// Box is a kind of the core group whose fields stand at the top level of its documents,
// like the fields of a Kubernetes Secret.
var Box = config.GroupVersionKind{Version: "v1", Kind: "Box"}

// BoxSpec is the spec of a Box.
type BoxSpec struct {
	Type      string            `json:"type,omitempty"`
	Data      map[string][]byte `json:"data,omitempty"`
	Words     map[string]string `json:"words,omitempty"`
	Parts     []Line            `json:"parts,omitempty"`
	Immutable *bool             `json:"immutable,omitempty"`
}

// TopLevel implements config.TopLevel.
func (*BoxSpec) TopLevel() {}

func box() *schema.Schema {
	return &schema.Schema{
		GroupVersionKind: Box, Versions: []string{"v1"},
		Plural: "boxes", Singular: "box", ShortNames: []string{"bx"},
		Codec: config.JSON[BoxSpec](), Check: checkBox,
	}
}

func checkBox(c *config.Config, r *schema.Report) {
	spec := c.Spec.(*BoxSpec)
	if len(spec.Data) > 0 && spec.Type == "" {
		r.Fault("type", "is missing: say what the data are")
	}
	if spec.Immutable != nil {
		r.Warn("immutable", "is not served yet and has no effect")
	}
}

// NewBox returns a Box as a user would write it.
func NewBox(namespace, name string, words map[string]string) *config.Config {
	return &config.Config{
		Meta: config.Meta{GroupVersionKind: Box, Namespace: namespace, Name: name},
		Spec: &BoxSpec{Type: "words", Words: words},
	}
}
