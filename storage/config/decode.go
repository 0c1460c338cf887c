package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/hashicorp/go-multierror"
	"google.golang.org/protobuf/proto"
	"sigs.k8s.io/yaml"
)

// Type is what the codec has to know of a kind.
type Type struct {
	// GroupVersionKind is the canonical one, under which objects are decoded.
	GroupVersionKind
	// NewSpec returns an empty message of the kind's type.
	NewSpec func() proto.Message
	// ClusterScoped kinds have no namespace; the codec does not use it, callers
	// that fill in a default namespace do.
	ClusterScoped bool
}

// Resolver finds the type of an apiVersion and kind as they stand in a
// document. Its errors are shown to users as they are.
type Resolver func(apiVersion, kind string) (Type, error)

// Document is one object of a file, and where it stood.
type Document struct {
	Config *Config
	// Source names the file.
	Source string
	// Index counts the documents of the file that are not empty, from 1; Line is
	// the line where the document's content begins.
	Index, Line int
	// Item is the object's place where the document is a List, as in
	// "items[3]"; empty where it is not.
	Item string
}

// Fault makes the error of one field of the document's object, in the words of
// the errors of Decode.
func (d Document) Fault(field, message string) *DecodeError {
	e := &DecodeError{Source: d.Source, Index: d.Index, Line: d.Line, Item: d.Item, Field: field, Message: message}
	if d.Config != nil {
		e.Object = d.Config.Key().String()
	}
	return e
}

// DecodeError is one fault of one object. What is not known is empty or 0.
type DecodeError struct {
	// Source, Index, Line and Item are those of Document.
	Source      string
	Index, Line int
	Item        string
	// Object is "kind/namespace/name", as far as the document names it.
	Object string
	// Field is the path as it stands in YAML, such as spec.http[0].route.
	Field, Message string
}

// Error is "source: document 3 (line 41): object: field: message".
func (e *DecodeError) Error() string {
	parts := make([]string, 0, 6)
	add := func(s string) {
		if s != "" {
			parts = append(parts, s)
		}
	}
	add(e.Source)
	if e.Index > 0 {
		add(fmt.Sprintf("document %d (line %d)", e.Index, e.Line))
	}
	add(e.Item)
	add(e.Object)
	add(e.Field)
	add(e.Message)
	return strings.Join(parts, ": ")
}

// Decode reads the objects of a file: YAML, several documents in one, or JSON;
// objects alone or in a List. It is strict: unknown fields and keys set twice
// are errors. Objects come out under their canonical kind. What a server adds
// to an object, status included, is ignored, except the resource version, which
// makes a write conditional.
//
// The error is a *multierror.Error of *DecodeError that names every fault of
// every document, or nil; the documents returned are those without one.
func Decode(source string, data []byte, resolve Resolver) ([]Document, error) {
	d := decoder{source: source, resolve: resolve}
	return d.decode(data)
}

// DecodeExported is Decode of objects that a server wrote, to put them back: it
// reads what the server set, too, creation times among it.
func DecodeExported(source string, data []byte, resolve Resolver) ([]Document, error) {
	d := decoder{source: source, resolve: resolve, keepServerFields: true}
	return d.decode(data)
}

func (d *decoder) decode(data []byte) ([]Document, error) {
	index := 0
	for _, c := range split(data) {
		raw, err := c.toJSON()
		if err == nil && isNull(raw) {
			continue
		}
		index++
		at := Document{Source: d.source, Index: index, Line: c.line}
		if err != nil {
			d.add(at.Fault("", err.Error()))
			continue
		}
		d.document(at, raw)
	}
	return d.documents, d.errors.ErrorOrNil()
}

// DecodeMessage reads one YAML or JSON document that is a message and no object,
// such as a MeshConfig, into an empty message: as strictly as the spec of an
// object, with durations in any unit. The error is a *multierror.Error that
// names every fault by its field, whose path begins with name.
func DecodeMessage(name string, data []byte, into proto.Message) error {
	raw, err := yaml.YAMLToJSONStrict(data)
	if err != nil {
		return yamlError(err)
	}
	var o object
	o.into(name, into, raw)
	var faults *multierror.Error
	for _, text := range o.faultTexts() {
		faults = multierror.Append(faults, errors.New(text))
	}
	return faults.ErrorOrNil()
}

// FromJSON reads one object as ToJSON writes it, what the server set included:
// creation time, generation, uid and status. It is as strict as Decode, and its
// error is of the same type.
func FromJSON(data []byte, resolve Resolver) (*Config, error) {
	var errors *multierror.Error
	if !json.Valid(data) || !utf8.Valid(data) {
		return nil, multierror.Append(errors, &DecodeError{Message: jsonSyntax(data).Error()})
	}
	o := object{keepServerFields: true}
	o.duplicates(data)
	c := o.decode(data, resolve)
	for _, f := range o.faults {
		errors = multierror.Append(errors, &DecodeError{Object: o.name(), Field: f.field, Message: f.message})
	}
	if err := errors.ErrorOrNil(); err != nil {
		return nil, err
	}
	return c, nil
}

type decoder struct {
	source           string
	resolve          Resolver
	keepServerFields bool
	documents        []Document
	errors           *multierror.Error
}

func (d *decoder) add(e *DecodeError) { d.errors = multierror.Append(d.errors, e) }

// document takes one object or a List of them.
func (d *decoder) document(at Document, raw json.RawMessage) {
	var list struct {
		Kind  string            `json:"kind"`
		Items []json.RawMessage `json:"items"`
	}
	if json.Unmarshal(raw, &list) != nil || !strings.HasSuffix(list.Kind, "List") {
		d.object(at, raw)
		return
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(raw, &members); err != nil {
		d.add(at.Fault("", err.Error()))
		return
	}
	for _, name := range sortedKeys(members) {
		switch name {
		case "apiVersion", "kind", "metadata", "items":
		default:
			d.add(at.Fault(name, unknownField))
		}
	}
	for i, item := range list.Items {
		at.Item = fmt.Sprintf("items[%d]", i)
		d.object(at, item)
	}
}

func (d *decoder) object(at Document, raw json.RawMessage) {
	o := object{keepServerFields: d.keepServerFields}
	at.Config = o.decode(raw, d.resolve)
	if len(o.faults) == 0 {
		d.documents = append(d.documents, at)
		return
	}
	for _, f := range o.faults {
		e := at.Fault(f.field, f.message)
		e.Object = o.name()
		d.add(e)
	}
}

func isNull(raw json.RawMessage) bool { return bytes.Equal(bytes.TrimSpace(raw), []byte("null")) }
