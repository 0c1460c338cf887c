package mesh

import (
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/host"
	"github.com/portolan-mesh/portolan/xds/mesh/routing"
)

// Importer is a VirtualService of the mesh gateway that makes the hosts it routes to
// visible to sidecars which do not import these themselves. Routes lead there, and no
// egress listener carries these hosts. It has the fields that this depends on. It is
// never modified.
type Importer struct {
	path      string
	namespace string
	hosts     []host.Name
	exportTo  discovery.Visibility
	// from are the namespaces of the sidecars for which a route leads to the host, nil for
	// all.
	from []string
}

// newImporter is the importer of a host; nil where the VirtualService makes none of it.
func newImporter(vs *routing.VirtualService, h string, from map[string][]string) *Importer {
	its, imports := from[h]
	if !imports {
		return nil
	}
	return &Importer{
		path: vs.Config.Key().Path(), namespace: vs.Config.Namespace, hosts: vs.Hosts, exportTo: vs.ExportTo, from: its,
	}
}

func (i *Importer) equal(o *Importer) bool {
	return i.path == o.path && slices.Equal(i.hosts, o.hosts) && slices.Equal(i.exportTo, o.exportTo) && slices.Equal(i.from, o.from)
}

// ImportRow is the importers of a host, by path.
type ImportRow struct {
	importers []*Importer
}

// imports has the importers by the host that they route to.
type imports struct{ tableOf[*ImportRow] }

var importRows = imports{tableOf[*ImportRow]{Destinations}}

// follow leaves a row as it is where a VirtualService differs in nothing but its
// routes.
func (t imports) follow(from, to *PushContext) {
	for c := range virtualServiceRows.diff(from, to) {
		before, after := c.Old.Imports(), c.New.Imports()
		for _, key := range unionKeys(slices.Collect(maps.Keys(before)), slices.Collect(maps.Keys(after))) {
			was, is := newImporter(c.Old, key, before), newImporter(c.New, key, after)
			if was != nil && is != nil && was.equal(is) {
				continue
			}
			row := t.of(to).Value(key).without(c.Key)
			if is != nil {
				row = row.with(is)
			}
			t.put(to, key, row, len(row.importers) > 0)
		}
	}
}

func (t imports) answer(v *View, key, _ string) any { return v.imported(t.of(v.context).Value(key)) }

func (r *ImportRow) without(path string) *ImportRow {
	if r == nil {
		return &ImportRow{}
	}
	return &ImportRow{slices.DeleteFunc(slices.Clone(r.importers), func(i *Importer) bool { return i.path == path })}
}

func (r *ImportRow) with(i *Importer) *ImportRow {
	list := append(slices.Clip(r.importers), i)
	slices.SortFunc(list, func(a, b *Importer) int { return strings.Compare(a.path, b.path) })
	return &ImportRow{list}
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

// imported says whether one of the importers of a row is seen by the class through
// one of its egress listeners.
func (v *View) imported(row *ImportRow) bool {
	return row != nil && slices.ContainsFunc(row.importers, func(i *Importer) bool {
		return i.exportTo.VisibleTo(v.scope.Namespace) && (i.from == nil || slices.Contains(i.from, v.scope.Namespace)) &&
			v.anyListener(viaAny, func(l int) bool { return v.scope.ImportsRoutes(l, i.namespace, i.hosts) })
	})
}
