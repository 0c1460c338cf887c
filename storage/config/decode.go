package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/hashicorp/go-multierror"
	"google.golang.org/protobuf/proto"

	"github.com/portolan-mesh/portolan/storage/cores"
)

// Type tells Decode about a kind.
type Type struct {
	// GroupVersionKind is the canonical one, under which objects are decoded.
	GroupVersionKind
	// Codec reads the specs of the kind.
	Codec Codec
	// ClusterScoped kinds have no namespace. Decode does not use it; callers that
	// fill in a default namespace do.
	ClusterScoped bool
}

// Resolver finds the type of the apiVersion and kind of a document. Users see its errors
// unchanged.
type Resolver func(apiVersion, kind string) (Type, error)

// Document is one object of a file, and its place there.
type Document struct {
	Config *Config
	// Source names the file.
	Source string
	// Index counts the documents of the file that are not empty, from 1; Line is
	// the line where the document's content begins.
	Index, Line int
	// Item is the object's place in a document that is a List, as in "items[3]"; else
	// empty.
	Item string

	spec   json.RawMessage // the spec as it was read, if it is a message
	unread Codec           // that of a spec that is not decoded
}

// Fault returns the error of one field of the document's object, in the format of Decode.
func (d Document) Fault(field, message string) *DecodeError {
	e := &DecodeError{Source: d.Source, Index: d.Index, Line: d.Line, Item: d.Item, Field: field, Message: message}
	if d.Config != nil {
		e.Object = d.Config.Key().String()
	}
	return e
}

// DecodeError is one fault of one object. Unknown fields are empty or 0.
type DecodeError struct {
	// Source, Index, Line and Item say where, as in Document.
	Source      string
	Index, Line int
	Item        string
	// Object is "kind/namespace/name", as far as the document names it.
	Object string
	// Field is the path as YAML documents write it, such as spec.http[0].route.
	Field, Message string
	// Refused says that the text can be read, but must not be stored.
	Refused bool
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

// Decode reads the objects of a file: YAML with one or more documents, or JSON; single
// objects or a List. It is strict: unknown fields and duplicate keys are errors.
// Objects get their canonical kind. Decode ignores the fields that a server sets,
// status included, except the resource version, which makes a write conditional.
//
// The error is a *multierror.Error of *DecodeError that names every fault of every
// document, or nil; only documents without a fault are returned.
func Decode(source string, data []byte, resolve Resolver) ([]Document, error) {
	d := decoder{source: source, resolve: resolve}
	return d.decode(data)
}

// DecodeExported is Decode for objects that a server exported: it also reads the fields
// that the server set, such as creation times.
func DecodeExported(source string, data []byte, resolve Resolver) ([]Document, error) {
	d := decoder{source: source, resolve: resolve, keepServerFields: true}
	return d.decode(data)
}

// DecodeEach is DecodeExported for a file whose documents do not depend on each other. It
// bounds the errors of each object, not of the file, so that it returns sound documents
// also after many faulty ones.
func DecodeEach(source string, data []byte, resolve Resolver) ([]Document, error) {
	d := decoder{source: source, resolve: resolve, keepServerFields: true, each: true}
	return d.decode(data)
}

func (d *decoder) decode(data []byte) ([]Document, error) {
	if err := checkValues(data); err != nil {
		d.add(Document{Source: d.source}.Fault("", err.Error()))
		return nil, d.errors.ErrorOrNil()
	}
	chunks := split(data)
	read := make([]reading, len(chunks))
	cores.Each(len(chunks), func(i int) { read[i] = d.read(chunks[i]) })
	index := 0
	for i, r := range read {
		if r.err == nil && isNull(r.raw) {
			continue
		}
		index++
		at := Document{Source: d.source, Index: index, Line: chunks[i].line}
		d.begin()
		if d.full() {
			d.add(at.Fault("", moreFaults))
			break
		}
		switch {
		case r.err != nil:
			d.add(at.Fault("", r.err.Error()))
		case r.one != nil:
			d.object(at, r.one)
		default:
			d.list(at, r.raw)
		}
	}
	return d.documents, d.errors.ErrorOrNil()
}

// reading is what was read of one chunk: an object, or a List as JSON.
type reading struct {
	raw json.RawMessage
	err error
	one *object
}

func (d *decoder) read(c chunk) (out reading) {
	if out.raw, out.err = c.toJSON(); out.err == nil && !isNull(out.raw) && !isList(out.raw) {
		out.one = d.readObject(out.raw)
	}
	return out
}

// isList says whether a document is a List of objects.
func isList(raw json.RawMessage) bool {
	if !bytes.Contains(raw, []byte(`List"`)) { // of the kind
		return false
	}
	var list struct {
		Kind  string            `json:"kind"`
		Items []json.RawMessage `json:"items"`
	}
	return json.Unmarshal(raw, &list) == nil && strings.HasSuffix(list.Kind, "List")
}

func (d *decoder) readObject(raw json.RawMessage) *object {
	o := &object{keepServerFields: d.keepServerFields, later: d.later}
	o.decode(raw, d.resolve)
	return o
}

// DecodeMessage reads one YAML or JSON document into an empty message that is no
// object, such as a MeshConfig. It is as strict as Decode, and takes durations in any
// unit. The error is a *multierror.Error that names every fault by its field, whose
// path begins with name.
func DecodeMessage(name string, data []byte, into proto.Message) error {
	raw, err := YAMLToJSON(data)
	if err != nil {
		return err
	}
	var o object
	if !o.tooDeep(raw) {
		o.into(name, into, raw)
	}
	var faults *multierror.Error
	for _, text := range o.faultTexts() {
		faults = multierror.Append(faults, errors.New(text))
	}
	return faults.ErrorOrNil()
}

// FromJSON reads one object as ToJSON writes it, with the fields that the server set:
// creation time, generation, uid and status. It is as strict as Decode, and its error is of
// the same type.
func FromJSON(data []byte, resolve Resolver) (*Config, error) {
	var errors *multierror.Error
	if err := checkValues(data); err != nil {
		return nil, multierror.Append(errors, &DecodeError{Message: err.Error(), Refused: true})
	}
	if !json.Valid(data) || !utf8.Valid(data) {
		return nil, multierror.Append(errors, &DecodeError{Message: jsonSyntax(data).Error()})
	}
	o := object{keepServerFields: true}
	o.duplicates(data)
	o.decode(data, resolve)
	for _, f := range o.faults {
		errors = multierror.Append(errors, &DecodeError{Object: o.name(), Field: f.field, Message: f.message, Refused: f.refused})
	}
	if err := errors.ErrorOrNil(); err != nil {
		return nil, err
	}
	return o.config, nil
}

type decoder struct {
	source           string
	resolve          Resolver
	keepServerFields bool
	later            bool
	each             bool // full counts each object by itself
	documents        []Document
	errors           *multierror.Error
	before           int // errors that do not count for full
}

func (d *decoder) add(e *DecodeError) { d.errors = multierror.Append(d.errors, e) }

// full says that enough faults are known.
func (d *decoder) full() bool { return len(d.errors.WrappedErrors())-d.before >= maxFaults }

// begin begins a document, or an item of a List.
func (d *decoder) begin() {
	if d.each {
		d.before = len(d.errors.WrappedErrors())
	}
}

var listFields = []string{"apiVersion", "kind", "metadata", "items"}

// list adds the objects of a List.
func (d *decoder) list(at Document, raw json.RawMessage) {
	members := maps.Collect(Members(raw))
	items, _ := Elements(members["items"])
	read := make([]*object, len(items))
	cores.Each(len(items), func(i int) { read[i] = d.readObject(items[i]) })
	for _, name := range sortedKeys(members) {
		if !slices.Contains(listFields, name) {
			if d.full() {
				d.add(at.Fault("", moreFaults))
				return
			}
			d.add(at.Fault(short(name), unknownField(name, listFields)))
		}
	}
	for i, o := range read {
		at.Item = fmt.Sprintf("items[%d]", i)
		d.begin()
		if d.full() {
			d.add(at.Fault("", moreFaults))
			return
		}
		d.object(at, o)
	}
}

// object adds an object, or its faults.
func (d *decoder) object(at Document, o *object) {
	at.Config, at.spec, at.unread = o.config, o.spec, o.unread
	if len(o.faults) == 0 {
		d.documents = append(d.documents, at)
		return
	}
	for _, f := range o.faults {
		e := at.Fault(f.field, f.message)
		e.Object, e.Refused = o.name(), f.refused
		d.add(e)
	}
}

func isNull(raw json.RawMessage) bool { return bytes.Equal(bytes.TrimSpace(raw), []byte("null")) }
