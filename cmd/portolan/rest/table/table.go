package table

import (
	"cmp"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portolan-mesh/portolan/cmd/portolan/text"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// Column is a column in the table of a kind.
type Column struct {
	// Name is the header. Tables show it in capitals.
	Name string
	// Wide columns are in wide tables only.
	Wide bool
	cell func(object *config.Config, wide bool) string
	// since, if set, is the time from which on the cell counts, instead of cell.
	since func(object *config.Config) time.Time
}

// IsName says whether the column has the name of the object.
func (c Column) IsName() bool { return c.Name == nameColumn }

// Text returns the cell of an object at a time; it is empty if there is nothing to show. wide
// shows lists in full. The object has the spec and the status that the config API shows.
func (c Column) Text(object *config.Config, wide bool, now time.Time) string {
	if c.since != nil {
		return text.Age(now, c.since(object))
	}
	return c.cell(object, wide)
}

// created is zero if unknown: an object in a file that does not say so is served with time 0.
func created(object *config.Config) time.Time {
	if object.CreationTimestamp.Unix() <= 0 {
		return time.Time{}
	}
	return object.CreationTimestamp
}

// show returns a column for every table, detail one for wide tables. The cell of an object
// whose spec cannot be read is empty.
func show[S any](name string, cell func(S, bool) string) Column {
	return Column{Name: name, cell: func(object *config.Config, wide bool) string {
		spec, ok := object.Spec.(S)
		if !ok {
			return ""
		}
		return cell(spec, wide)
	}}
}

func detail[S any](name string, cell func(S) string) Column {
	column := show(name, func(spec S, _ bool) string { return cell(spec) })
	column.Wide = true
	return column
}

// Columns returns the columns of a kind, in the order of portolan get.
func Columns(kind config.GroupVersionKind) []Column {
	own := specColumns(kind)
	isWide := func(c Column) bool { return c.Wide }
	name := Column{Name: nameColumn, cell: func(object *config.Config, _ bool) string { return object.Name }}
	if kind == schema.Event { // as in Kubernetes: nobody named it, and what is about it is in it
		name.Wide = true
		return slices.Concat(slices.DeleteFunc(slices.Clone(own), isWide), slices.DeleteFunc(own, func(c Column) bool { return !c.Wide }), []Column{name})
	}
	return slices.Concat(
		[]Column{name},
		slices.DeleteFunc(slices.Clone(own), isWide),
		[]Column{
			{Name: "Rev", cell: func(object *config.Config, _ bool) string { return object.ResourceVersion }},
			{Name: ageName, since: created},
			{Name: "Programmed", Wide: true, cell: func(object *config.Config, _ bool) string { return programmed(object) }},
			{Name: "Issues", Wide: true, cell: func(object *config.Config, _ bool) string { return issues(object) }},
			{Name: SourceName, Wide: true, cell: func(object *config.Config, _ bool) string { return Source(object.Annotations) }},
		},
		slices.DeleteFunc(own, func(c Column) bool { return !c.Wide }),
	)
}

const (
	nameColumn = "Name"
	ageName    = "Age"
	// SourceName is the name of the column with the Source of objects.
	SourceName = "Source"
	// storeName is what tables call the store.
	storeName = "store"
)

// Source returns the source that an object comes from by its annotations, without its place there.
func Source(annotations map[string]string) string {
	source, _, _ := strings.Cut(annotations[config.SourceAnnotation], ", ")
	return cmp.Or(source, storeName)
}

// printed returns the names of the columns that kubectl shows without -o wide:
// those of Istio's CustomResourceDefinitions. Kinds for which Istio has no other column than
// the age, and our own, have the columns of portolan get.
func printed(kind config.GroupVersionKind, columns []Column) []string {
	switch kind {
	case schema.VirtualService:
		return []string{nameColumn, "Gateways", "Hosts", ageName}
	case schema.DestinationRule:
		return []string{nameColumn, "Host", ageName}
	case schema.ServiceEntry:
		return []string{nameColumn, "Hosts", "Location", "Resolution", ageName}
	case schema.WorkloadEntry:
		return []string{nameColumn, ageName, "Address"}
	case schema.AuthorizationPolicy:
		return []string{nameColumn, "Action", ageName}
	case schema.PeerAuthentication:
		return []string{nameColumn, "Mode", ageName}
	}
	var out []string
	for _, c := range columns {
		if !c.Wide && c.Name != "Rev" {
			out = append(out, c.Name)
		}
	}
	return out
}

// Table makes the rows of the Tables of Kubernetes for one kind.
type Table struct {
	columns []Column
	shown   int // how many of them are shown without -o wide
}

// Of returns the table of a kind.
func Of(kind config.GroupVersionKind) Table {
	columns := Columns(kind)
	names := printed(kind, columns)
	place := func(c Column) int {
		if i := slices.Index(names, c.Name); i >= 0 {
			return i
		}
		return len(names)
	}
	slices.SortStableFunc(columns, func(a, b Column) int { return place(a) - place(b) })
	return Table{columns, len(names)}
}

// Definitions returns the definitions of the columns; those with a priority are for -o wide.
func (t Table) Definitions() []metav1.TableColumnDefinition {
	meta := metav1.ObjectMeta{}.SwaggerDoc()
	var out []metav1.TableColumnDefinition
	for i, c := range t.columns {
		one := metav1.TableColumnDefinition{Name: c.Name, Type: "string"}
		switch {
		case c.IsName():
			one.Format, one.Description = "name", meta["name"]
		case c.Name == ageName:
			one.Description = meta["creationTimestamp"]
		}
		if i >= t.shown {
			one.Priority = 1
		}
		out = append(out, one)
	}
	return out
}

// Cells returns the cells of an object at a time, one for each of the Definitions. A cell with
// nothing to show is nil. The age is "<unknown>" as in Kubernetes if it is not known.
func (t Table) Cells(object *config.Config, now time.Time) []any {
	out := make([]any, 0, len(t.columns))
	for _, c := range t.columns {
		switch cell := c.Text(object, true, now); {
		case cell != "":
			out = append(out, cell)
		case c.since != nil:
			out = append(out, "<unknown>")
		default:
			out = append(out, nil)
		}
	}
	return out
}
