package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"unicode/utf8"

	yamlv2 "go.yaml.in/yaml/v2"
	"sigs.k8s.io/yaml"
)

// chunk is the text of one document of a file. The text begins at line start
// of the file, its content at line.
type chunk struct {
	text        []byte
	start, line int
	json        bool
}

// split cuts a file at its document markers, which YAML allows nowhere else at the
// beginning of a line, and drops documents that hold only comments. A document that begins
// with a brace may be a stream of JSON objects: each is a chunk of its own.
func split(data []byte) []chunk {
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	var out []chunk
	current := chunk{start: 1}
	begin, offset, number := 0, 0, 0
	flush := func(end int) {
		current.text = data[begin:end]
		if current.line > 0 {
			out = append(out, current.objects()...)
		}
	}
	for line := range bytes.Lines(data) {
		number++
		if marker(line) {
			flush(offset)
			begin, current = offset, chunk{start: number}
			if bytes.HasPrefix(line, []byte("...")) {
				begin, current = offset+len(line), chunk{start: number + 1}
				offset += len(line)
				continue
			}
			if content(line[3:]) {
				current.line = number
			}
		} else if current.line == 0 && line[0] != '%' && content(line) {
			current.line = number
		}
		offset += len(line)
	}
	flush(len(data))
	return out
}

func marker(line []byte) bool {
	if !bytes.HasPrefix(line, []byte("---")) && !bytes.HasPrefix(line, []byte("...")) {
		return false
	}
	return len(line) == 3 || bytes.IndexByte([]byte(" \t\r\n"), line[3]) >= 0
}

// content says whether a line holds more than blanks and a comment.
func content(line []byte) bool {
	line = bytes.TrimSpace(line)
	return len(line) > 0 && line[0] != '#'
}

// objects cuts a stream of JSON objects into one chunk for each; a chunk that
// is not such a stream is left whole.
func (c chunk) objects() []chunk {
	if trimmed := bytes.TrimSpace(c.text); len(trimmed) == 0 || trimmed[0] != '{' {
		return []chunk{c}
	}
	var out []chunk
	stream := json.NewDecoder(bytes.NewReader(c.text))
	for {
		var raw json.RawMessage
		err := stream.Decode(&raw)
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			return []chunk{c}
		}
		begin := int(stream.InputOffset()) - len(raw)
		line := c.start + bytes.Count(c.text[:begin], []byte("\n"))
		out = append(out, chunk{text: raw, start: line, line: line, json: true})
	}
}

// Errors of toJSON name the lines of the file.
func (c chunk) toJSON() (json.RawMessage, error) {
	if c.json {
		if !utf8.Valid(c.text) {
			return nil, jsonSyntax(c.text)
		}
		var o object
		o.duplicates(c.text)
		if len(o.faults) > 0 {
			return nil, errors.New(strings.Join(o.faultTexts(), "; "))
		}
		return c.text, nil
	}
	if raw, ok := plainJSON(c.text); ok {
		return raw, nil
	}
	if err := checkAliases(c.text); err != nil {
		return nil, err
	}
	if err := c.checkKeys(); err != nil {
		return nil, err
	}
	raw, err := yaml.YAMLToJSONStrict(c.text)
	if err != nil {
		// Once more, behind empty lines: the parser's line numbers become the file's.
		_, err = yaml.YAMLToJSONStrict(append(bytes.Repeat([]byte("\n"), c.start-1), c.text...))
		return nil, yamlError(err)
	}
	if err := c.single(); err != nil {
		return nil, err
	}
	return raw, nil
}

// YAMLToJSON returns a text of one YAML or JSON document as JSON. It refuses keys that are
// set twice. It refuses text over the limits of this package before it allocates memory for
// it. A text without content is null.
func YAMLToJSON(data []byte) (json.RawMessage, error) {
	if err := checkValues(data); err != nil {
		return nil, err
	}
	switch chunks := split(data); len(chunks) {
	case 0:
		return json.RawMessage("null"), nil
	case 1:
		return chunks[0].toJSON()
	default:
		return nil, fmt.Errorf("the text holds %d documents, and one is wanted", len(chunks))
	}
}

// single refuses text behind the end of a document, which the YAML parser would ignore.
// Only a document in braces can end before its text does.
func (c chunk) single() error {
	first := bytes.TrimLeft(c.text, " \t\r\n-")
	if len(first) == 0 || bytes.IndexByte([]byte("{[&!*#%"), first[0]) < 0 {
		return nil
	}
	documents := yamlv2.NewDecoder(bytes.NewReader(c.text))
	var ignored any
	if err := documents.Decode(&ignored); err != nil {
		return yamlError(err)
	}
	if err := documents.Decode(&ignored); !errors.Is(err, io.EOF) {
		return errors.New("text follows the end of the document: separate documents with a line of ---")
	}
	return nil
}

var setTwice = regexp.MustCompile(`key (".*") already set in map`)

// yamlError is the parser's error in one line and without its preambles.
func yamlError(err error) error {
	var lines []string
	for line := range strings.Lines(err.Error()) {
		line = strings.TrimSpace(line)
		line = strings.TrimPrefix(line, "yaml: ")
		if line = strings.TrimSpace(line); line == "unmarshal errors:" {
			continue
		}
		lines = append(lines, setTwice.ReplaceAllString(line, "$1 is set twice"))
	}
	return fmt.Errorf("not valid YAML: %s", strings.Join(lines, "; "))
}

// jsonSyntax says why text is not JSON.
func jsonSyntax(data []byte) error {
	var ignored json.RawMessage
	err := json.Unmarshal(data, &ignored)
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		return fmt.Errorf("not valid JSON: %w (at byte %d)", err, syntax.Offset)
	}
	return errors.New("not valid JSON: the text is not in UTF-8")
}
