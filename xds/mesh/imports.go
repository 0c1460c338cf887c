package mesh

import (
	"iter"
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
}

func newImporter(vs *routing.VirtualService) *Importer {
	return &Importer{
		path: vs.Config.Key().Path(), namespace: vs.Config.Namespace, hosts: vs.Hosts, exportTo: vs.ExportTo,
	}
}

func (i *Importer) equal(o *Importer) bool {
	return i.path == o.path && slices.Equal(i.hosts, o.hosts) && slices.Equal(i.exportTo, o.exportTo)
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
		before, after := c.Old.ImportedHosts(), c.New.ImportedHosts()
		same := c.HasOld && c.HasNew && newImporter(c.Old).equal(newImporter(c.New))
		for _, key := range unionKeys(before, after) {
			had, has := slices.Contains(before, key), slices.Contains(after, key)
			if had && has && same {
				continue
			}
			row := t.of(to).Value(key).without(c.Key)
			if has {
				row = row.with(newImporter(c.New))
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
		return i.exportTo.VisibleTo(v.scope.Namespace) &&
			v.anyListener(viaAny, func(l int) bool { return v.scope.ImportsRoutes(l, i.namespace, i.hosts) })
	})
}
