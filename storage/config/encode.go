package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// document is the shape of an object, its fields in the order in which they are
// written.
type document struct {
	APIVersion string          `json:"apiVersion"`
	Kind       string          `json:"kind"`
	Metadata   metadata        `json:"metadata"`
	Spec       json.RawMessage `json:"spec,omitempty"` // nil for a TopLevel
	Status     json.RawMessage `json:"status,omitempty"`
}

type metadata struct {
	Name              string            `json:"name"`
	Namespace         string            `json:"namespace,omitempty"`
	Labels            map[string]string `json:"labels,omitempty"`
	Annotations       map[string]string `json:"annotations,omitempty"`
	ResourceVersion   string            `json:"resourceVersion,omitempty"`
	CreationTimestamp string            `json:"creationTimestamp,omitempty"`
	Generation        int64             `json:"generation,omitempty"`
	UID               string            `json:"uid,omitempty"`

	OwnerReferences []metav1.OwnerReference     `json:"ownerReferences,omitempty"`
	ManagedFields   []metav1.ManagedFieldsEntry `json:"managedFields,omitempty"`
}

// ToJSON writes an object in one line of JSON, under an API version of its kind;
// an empty version stands for the object's own. The spec is as written (AsWritten). Equal
// objects have equal bytes.
func ToJSON(c *Config, version string) ([]byte, error) {
	kind := c.GroupVersionKind
	if version != "" {
		kind.Version = version
	}
	shown := c.Spec
	if spelled, ok := shown.(Spelled); ok {
		shown = spelled.In(kind.Version)
	}
	spec := json.RawMessage(c.AsWritten())
	var err error
	if len(spec) == 0 {
		spec, err = specJSON(shown)
	}
	if err != nil {
		return nil, fmt.Errorf("encode the spec of %s: %w", c.Key(), err)
	}
	out := document{APIVersion: kind.APIVersion(), Kind: kind.Kind, Metadata: metadataOf(c)}
	topLevel := formOf(c.Spec).path() == ""
	if !topLevel {
		out.Spec = spec
	}
	if c.Status != nil {
		if out.Status, err = statusJSON(c.Status); err != nil {
			return nil, fmt.Errorf("encode the status of %s: %w", c.Key(), err)
		}
	}
	text, err := encoded(out) // also takes protojson's random spaces away
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", c.Key(), err)
	}
	if topLevel {
		text = appendMembers(text, spec)
	}
	return text, nil
}

// MetadataJSON writes the metadata of an object as ToJSON does.
func MetadataJSON(c *Config) ([]byte, error) {
	text, err := encoded(metadataOf(c))
	if err != nil {
		return nil, fmt.Errorf("encode the metadata of %s: %w", c.Key(), err)
	}
	return text, nil
}

// encoded returns a value in one line of JSON, without escapes that only HTML needs.
func encoded(value any) ([]byte, error) {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(value)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

func metadataOf(c *Config) metadata {
	out := metadata{
		Name: c.Name, Namespace: c.Namespace, Labels: c.Labels, Annotations: c.Annotations,
		ResourceVersion: c.ResourceVersion, Generation: c.Generation, UID: c.UID,
		OwnerReferences: c.OwnerReferences, ManagedFields: c.ManagedFields,
	}
	if !c.CreationTimestamp.IsZero() {
		out.CreationTimestamp = c.CreationTimestamp.UTC().Format(time.RFC3339)
	}
	return out
}

// appendMembers appends the members of a JSON object to another one, which is not empty.
func appendMembers(object, more []byte) []byte {
	if bytes.Equal(more, []byte("{}")) {
		return object
	}
	object = append(object[:len(object)-1], ',')
	return append(object, more[1:]...)
}

// Content returns the fields of the spec of a document of ToJSON, under spec or at the top
// level. The caller may modify the map. It is nil if the spec is no mapping.
func Content(document map[string]any) map[string]any {
	if spec, ok := document[specField]; ok {
		members, _ := spec.(map[string]any)
		return maps.Clone(members)
	}
	content := maps.Clone(document)
	for _, name := range documentFields {
		delete(content, name)
	}
	return content
}

// ToYAML writes an object as one YAML document under the version of its kind. Keys are
// in alphabetical order, which is also apiVersion, kind, metadata, spec, status. Equal
// objects have equal bytes.
func ToYAML(c *Config) ([]byte, error) {
	text, err := ToJSON(c, "")
	if err != nil {
		return nil, err
	}
	out, err := JSONToYAML(text)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", c.Key(), err)
	}
	return out, nil
}

// JSONToYAML writes compact JSON as YAML, whatever characters its strings have. With a
// key "<<" it stays JSON, which is YAML too: the library would write the key bare, and a
// bare one merges mappings.
func JSONToYAML(text []byte) ([]byte, error) {
	if !bytes.Contains(text, []byte(`"<<":`)) {
		return yaml.JSONToYAML(escapeForYAML(text))
	}
	var out bytes.Buffer
	if err := json.Indent(&out, escapeForYAML(text), "", "  "); err != nil {
		return nil, err
	}
	out.WriteByte('\n')
	return out.Bytes(), nil
}

func specJSON(spec any) (json.RawMessage, error) {
	if spec == nil {
		return json.RawMessage("{}"), nil
	}
	return formOf(spec).toJSON(spec)
}

// observedGeneration matches numbers that protobuf writes as strings, and that Kubernetes
// clients read as numbers. It cannot match inside a string of a status, where quotes are
// escaped.
var observedGeneration = regexp.MustCompile(`("observedGeneration":\s*)"(-?\d+)"`)

func statusJSON(m proto.Message) (json.RawMessage, error) {
	text, err := protojson.Marshal(m)
	return observedGeneration.ReplaceAll(text, []byte("$1$2")), err
}

// escapeForYAML escapes the characters that JSON allows in a string and YAML does not, and
// those that YAML reads as the end of a line.
func escapeForYAML(text []byte) []byte {
	printable := func(r rune) bool {
		switch {
		case r == 0x7f, r >= 0x80 && r < 0xa0, r == 0x2028, r == 0x2029, r == 0xfeff, r == 0xfffe, r == 0xffff:
			return false
		}
		return true
	}
	if bytes.IndexFunc(text, func(r rune) bool { return !printable(r) }) < 0 {
		return text
	}
	var b bytes.Buffer
	for _, r := range string(text) {
		if printable(r) {
			b.WriteRune(r)
		} else {
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.Bytes()
}
