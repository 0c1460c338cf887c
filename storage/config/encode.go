package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"sigs.k8s.io/yaml"
)

// document is the shape of an object, its fields in the order in which they are
// written.
type document struct {
	APIVersion string          `json:"apiVersion"`
	Kind       string          `json:"kind"`
	Metadata   metadata        `json:"metadata"`
	Spec       json.RawMessage `json:"spec"`
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
}

// ToJSON writes an object in one line of JSON, presented under an API version
// of its kind; the empty one is that of the object. Equal objects have equal
// bytes.
func ToJSON(c *Config, version string) ([]byte, error) {
	kind := c.GroupVersionKind
	if version != "" {
		kind.Version = version
	}
	spec, err := messageJSON(c.Spec)
	if err != nil {
		return nil, fmt.Errorf("encode the spec of %s: %w", c.Key(), err)
	}
	out := document{APIVersion: kind.APIVersion(), Kind: kind.Kind, Spec: spec, Metadata: metadata{
		Name: c.Name, Namespace: c.Namespace, Labels: c.Labels, Annotations: c.Annotations,
		ResourceVersion: c.ResourceVersion, Generation: c.Generation, UID: c.UID,
	}}
	if !c.CreationTimestamp.IsZero() {
		out.Metadata.CreationTimestamp = c.CreationTimestamp.UTC().Format(time.RFC3339)
	}
	if c.Status != nil {
		if out.Status, err = messageJSON(c.Status); err != nil {
			return nil, fmt.Errorf("encode the status of %s: %w", c.Key(), err)
		}
	}
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(out); err != nil { // also takes protojson's random spaces away
		return nil, fmt.Errorf("encode %s: %w", c.Key(), err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// ToYAML writes an object as one YAML document under the version of its kind,
// keys in alphabetical order, which is also apiVersion, kind, metadata, spec,
// status. Equal objects have equal bytes.
func ToYAML(c *Config) ([]byte, error) {
	text, err := ToJSON(c, "")
	if err != nil {
		return nil, err
	}
	out, err := yaml.JSONToYAML(escapeForYAML(text))
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", c.Key(), err)
	}
	return out, nil
}

func messageJSON(m proto.Message) (json.RawMessage, error) {
	if m == nil {
		return json.RawMessage("{}"), nil
	}
	return protojson.Marshal(m)
}

// escapeForYAML escapes the characters that JSON allows in a string and the
// YAML reader does not.
func escapeForYAML(text []byte) []byte {
	printable := func(r rune) bool {
		switch {
		case r == 0x7f, r >= 0x80 && r < 0xa0 && r != 0x85, r == 0xfeff, r == 0xfffe, r == 0xffff:
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
