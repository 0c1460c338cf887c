package mesh

import (
	"iter"
	"maps"
	"slices"

	"github.com/portolan-mesh/portolan/xds/mesh/routing"
)

// ImportRow holds the importers of a host.
type ImportRow = routing.Importers

// imports maps a host to the VirtualServices that make it known to sidecars, since they
// route to it.
type imports struct{ tableOf[*ImportRow] }

var importRows = imports{tableOf[*ImportRow]{Destinations}}

// follow keeps a row if a VirtualService changed only in its routes.
func (t imports) follow(from, to *PushContext) {
	for c := range virtualServiceRows.diff(from, to) {
		before, after := c.Old.Imports(), c.New.Imports()
		for _, key := range unionKeys(slices.Collect(maps.Keys(before)), slices.Collect(maps.Keys(after))) {
			was, is := routing.NewImporter(c.Old, key, before), routing.NewImporter(c.New, key, after)
			if was != nil && is != nil && was.Equal(is) {
				continue
			}
			row := t.rowsOf(to).Value(key).Without(c.Key)
			if is != nil {
				row = row.With(is)
			}
			t.put(to, key, row, len(row.List) > 0)
		}
	}
}

func (t imports) answer(v *View, key, _ string) any {
	return v.imported(t.rowsOf(v.push).Value(key))
}

// ImportedHosts iterates over hosts that the class may have begun or ceased to see
// because VirtualServices route to them. There are none if it sees everything that is
// exported to its namespace.
func (v *View) ImportedHosts(d Delta) iter.Seq[*HostRow] {
	return func(yield func(*HostRow) bool) {
		if !v.scope.Restricted() {
			return
		}
		for c := range d.Destinations() {
			for row := range d.HostsMatching(c.Key) {
				if !yield(row) {
					return
				}
			}
		}
	}
}

// imported says whether the class sees one of the row's importers through one of its
// egress listeners.
func (v *View) imported(row *ImportRow) bool {
	return row.Any(v.scope.Namespace, func(i *routing.Importer) bool {
		return v.anyListener(viaAny, func(l int) bool { return v.scope.ImportsRoutes(l, i.Namespace, i.Hosts) })
	})
}
