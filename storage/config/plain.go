package config

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
	"sigs.k8s.io/yaml"
)

// plainJSON returns the JSON of a YAML document that has nothing but mappings, lists and scalars
// in their usual forms, as nearly all have. It is what sigs.k8s.io/yaml returns, for two thirds of
// its time: no values of Go stand between the two texts. It returns false for any other document,
// and for one with a fault.
func plainJSON(text []byte) (json.RawMessage, bool) {
	if !plainText(text) {
		return nil, false
	}
	var document yamlv3.Node
	if err := yamlv3.Unmarshal(text, &document); err != nil || len(document.Content) != 1 {
		return nil, false
	}
	w := plainWriter{out: make([]byte, 0, len(text))}
	return w.out, w.value(document.Content[0])
}

// plainText says whether a text is in ASCII and has no comment, no tab, and no other beginning
// than a letter after its marker.
func plainText(text []byte) bool {
	begin := bytes.TrimLeft(text, " \n-")
	if len(begin) == 0 || !letter(begin[0]) {
		return false
	}
	return !slices.ContainsFunc(text, func(c byte) bool { return c < ' ' && c != '\n' || c > '~' || c == '#' })
}

func letter(c byte) bool { return c|' ' >= 'a' && c|' ' <= 'z' }

// plainWriter writes the JSON of the nodes of a document.
type plainWriter struct{ out []byte }

// value writes a node. It returns false for one with an anchor, an alias or a tag, or with a key
// that is there twice or is no text.
func (w *plainWriter) value(n *yamlv3.Node) bool {
	switch {
	case n.Anchor != "" || n.Style&yamlv3.TaggedStyle != 0:
		return false
	case n.Kind == yamlv3.MappingNode:
		return w.mapping(n)
	case n.Kind == yamlv3.SequenceNode:
		w.out = append(w.out, '[')
		for i, item := range n.Content {
			if i > 0 {
				w.out = append(w.out, ',')
			}
			if !w.value(item) {
				return false
			}
		}
		w.out = append(w.out, ']')
		return true
	case n.Kind == yamlv3.ScalarNode:
		text, ok := scalarJSON(n)
		w.out = append(w.out, text...)
		return ok
	}
	return false
}

// member is a member of a mapping: its key in JSON, and the node of its value.
type member struct {
	key   string
	value *yamlv3.Node
}

func (w *plainWriter) mapping(n *yamlv3.Node) bool {
	members := make([]member, len(n.Content)/2)
	for i := range members {
		key := n.Content[2*i]
		text, ok := scalarJSON(key)
		if !ok || key.Anchor != "" || key.Style&yamlv3.TaggedStyle != 0 || key.Value == "<<" || text[0] != '"' {
			return false
		}
		members[i] = member{text, n.Content[2*i+1]}
	}
	slices.SortFunc(members, func(a, b member) int { return strings.Compare(a.key, b.key) })
	w.out = append(w.out, '{')
	for i, m := range members {
		if i > 0 {
			if m.key == members[i-1].key {
				return false
			}
			w.out = append(w.out, ',')
		}
		w.out = append(append(w.out, m.key...), ':')
		if !w.value(m.value) {
			return false
		}
	}
	w.out = append(w.out, '}')
	return true
}

// scalarJSON returns a scalar as JSON.
func scalarJSON(n *yamlv3.Node) (string, bool) {
	const quoted = yamlv3.DoubleQuotedStyle | yamlv3.SingleQuotedStyle
	switch {
	case n.Kind != yamlv3.ScalarNode || n.Style&^quoted != 0:
		return "", false
	case n.Style != 0 || isWord(n.Value):
		return quote(n.Value)
	case isNumber(n.Value):
		return n.Value, true
	}
	text, err := yaml.YAMLToJSONStrict([]byte(n.Value))
	return string(text), err == nil
}

// isWord says whether an unquoted scalar is sure to be text: a word, a path or an address of IPv4.
func isWord(value string) bool {
	if value == "" {
		return false
	}
	switch c := value[0]; {
	case c == '/' || c == '_':
		return true
	case letter(c):
		word := strings.ToLower(value)
		return !booleans[word] && word != "null"
	}
	return strings.Count(value, ".") > 1 && strings.Trim(value, "0123456789.") == "" && value[0] != '.'
}

// isNumber says whether an unquoted scalar is a whole number that JSON writes in the same way.
func isNumber(value string) bool {
	const most = 18 // digits of any number that fits 64 bits
	if len(value) == 0 || len(value) > most || value[0] == '0' && len(value) > 1 {
		return false
	}
	return strings.Trim(value, "0123456789") == ""
}

// quote returns a text of ASCII as encoding/json writes it.
func quote(text string) (string, bool) {
	if !strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' || strings.ContainsRune(`"\<>&`, r) }) {
		return `"` + text + `"`, true
	}
	out, err := json.Marshal(text)
	return string(out), err == nil
}
