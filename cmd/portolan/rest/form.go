package rest

import (
	"bytes"
	"encoding/json"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest/table"
	"github.com/portolan-mesh/portolan/storage/config"
)

// form is the form of the answer to a call.
type form struct {
	shape
	table table.Table // if as is a Table
}

// shape is the part of a form that decides the text of an object.
type shape struct {
	media       string // the Content-Type
	pretty      bool   // indented, if it is JSON
	as, version string // a kind of meta.k8s.io, and its version
	include     metav1.IncludeObjectPolicy
	// defined says that the Table of one event has the definitions of the columns: the first
	// of a watch has them.
	defined bool
}

// typeMeta returns the type of a kind of meta.k8s.io.
func (s shape) typeMeta(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{Kind: kind, APIVersion: metav1.GroupName + "/" + s.version}
}

// item returns an object as an element of a list, as layout lays it out.
func (f form) item(object *config.Config, version string) ([]byte, error) {
	text, err := f.element(object, version)
	switch {
	case err != nil:
		return nil, err
	case f.media == runtime.ContentTypeYAML:
		text, err = config.JSONToYAML(text)
		return bytes.ReplaceAll(bytes.TrimSuffix(text, []byte("\n")), []byte("\n"), []byte("\n  ")), err
	case f.pretty:
		return indented(text, "    ")
	}
	return text, nil
}

// element returns an object as an element of a list, in JSON.
func (f form) element(object *config.Config, version string) ([]byte, error) {
	switch f.as {
	case asTable:
		return f.row(object, version)
	case asPartial, asPartialList:
		return f.partial(object)
	}
	return document(object, version)
}

// single returns an object as an answer or an event of its own, in JSON.
func (f form) single(object *config.Config, version string) ([]byte, error) {
	if f.as != asTable {
		return f.element(object, version)
	}
	row, err := f.row(object, version)
	if err != nil {
		return nil, err
	}
	return f.tableOf(object.ResourceVersion, row)
}

// partial returns the metadata of an object.
func (f form) partial(object *config.Config) ([]byte, error) {
	metadata, err := config.MetadataJSON(object)
	if err != nil {
		return nil, err
	}
	out := make([]byte, 0, len(metadata)+96)
	out = append(out, `{"kind":"`+asPartial+`","apiVersion":"`+metav1.GroupName+"/"+f.version+`","metadata":`...)
	return append(append(out, metadata...), '}'), nil
}

// row returns an object as a row of a Table.
func (f form) row(object *config.Config, version string) (_ []byte, err error) {
	var within []byte
	switch f.include {
	case metav1.IncludeObject:
		within, err = document(object, version)
	case metav1.IncludeMetadata:
		within, err = f.partial(object)
	}
	if err != nil {
		return nil, err
	}
	return rowOf(f.table.Cells(config.Shown(object), time.Now()), within)
}

// rowOf returns a row; without an object it has null in its place.
func rowOf(cells []any, object []byte) ([]byte, error) {
	var out bytes.Buffer
	out.Grow(len(object) + 256)
	out.WriteString(`{"cells":`)
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(cells); err != nil {
		return nil, err
	}
	out.Truncate(out.Len() - 1) // the line feed
	if object == nil {
		object = []byte("null")
	}
	out.WriteString(`,"object":`)
	out.Write(object)
	out.WriteByte('}')
	return out.Bytes(), nil
}

// tableOf returns a Table of one row.
func (f form) tableOf(revision string, row []byte) ([]byte, error) {
	head, err := f.tableHead(metav1.ListMeta{ResourceVersion: revision}, f.defined)
	if err != nil {
		return nil, err
	}
	out := append(bytes.TrimSuffix(head, []byte("}")), `,"rows":[`...)
	return append(append(out, row...), "]}"...), nil
}

// tableHead returns a Table without rows.
func (f form) tableHead(meta metav1.ListMeta, defined bool) ([]byte, error) {
	var definitions []metav1.TableColumnDefinition
	if defined {
		definitions = f.table.Definitions()
	}
	return json.Marshal(struct {
		metav1.TypeMeta
		Metadata          metav1.ListMeta                `json:"metadata"`
		ColumnDefinitions []metav1.TableColumnDefinition `json:"columnDefinitions"`
	}{f.typeMeta(asTable), meta, definitions})
}

// listHead returns a list without its elements, and the name of their field.
func (c *call) listHead(meta metav1.ListMeta) (head []byte, elements string, err error) {
	of := c.typeMeta("List")
	switch c.form.as {
	case asTable:
		head, err = c.form.tableHead(meta, true)
		return head, "rows", err
	case asPartialList:
		of = c.form.typeMeta(asPartialList)
	}
	head, err = json.Marshal(struct {
		metav1.TypeMeta
		Metadata metav1.ListMeta `json:"metadata"`
	}{of, meta})
	return head, "items", err
}

// bookmark returns the object of a bookmark.
func (c *call) bookmark(revision string, annotations map[string]string) ([]byte, error) {
	mark := metav1.PartialObjectMetadata{
		TypeMeta: c.typeMeta(""), ObjectMeta: metav1.ObjectMeta{ResourceVersion: revision, Annotations: annotations},
	}
	if c.form.as != "" {
		mark.TypeMeta = c.form.typeMeta(asPartial)
	}
	text, err := json.Marshal(mark)
	if err != nil || c.form.as != asTable {
		return text, err
	}
	cells := make([]any, len(c.form.table.Definitions()))
	cells[0] = ""
	if c.form.include == metav1.IncludeNone {
		text = nil
	}
	row, err := rowOf(cells, text)
	if err != nil {
		return nil, err
	}
	return c.form.tableOf(revision, row)
}

// body returns the body of an answer from its JSON.
func (f form) body(text []byte) ([]byte, error) {
	switch {
	case f.media == runtime.ContentTypeProtobuf:
		return toProtobuf(text)
	case f.media == runtime.ContentTypeYAML:
		return config.JSONToYAML(text)
	case f.pretty:
		text, err := indented(text, "")
		return append(text, '\n'), err
	}
	return append(text, '\n'), nil
}

func indented(text []byte, prefix string) ([]byte, error) {
	var out bytes.Buffer
	err := json.Indent(&out, text, prefix, "  ")
	return out.Bytes(), err
}
