package mesh

import (
	"iter"
	"slices"
	"strings"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/host"
	"github.com/portolan-mesh/portolan/storage/pmap"
)

// Importer is a VirtualService of the mesh gateway as one that makes the hosts
// which it routes to known to sidecars that do not import them otherwise: as much
// of it as that depends on. It is never modified.
type Importer struct {
	path      string
	namespace string
	hosts     []host.Name
	exportTo  discovery.Visibility
}

func newImporter(vs *VirtualService) *Importer {
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

// importIndex has the importers by the host that they route to.
type importIndex struct {
	rows pmap.Map[*ImportRow]
}

// next follows one VirtualService, either of which may be nil. What its routes do
// otherwise changes no row.
func (x importIndex) next(old, curr *VirtualService) importIndex {
	before, after := old.importKeys(), curr.importKeys()
	same := old != nil && curr != nil && newImporter(old).equal(newImporter(curr))
	for _, key := range unionKeys(before, after) {
		had, has := slices.Contains(before, key), slices.Contains(after, key)
		switch {
		case had && has && same:
		case has:
			x.rows = x.rows.Set(key, x.rows.Value(key).without(curr.Config.Key().Path()).with(newImporter(curr)))
		default:
			row := x.rows.Value(key).without(old.Config.Key().Path())
			if len(row.importers) == 0 {
				x.rows = x.rows.Delete(key)
			} else {
				x.rows = x.rows.Set(key, row)
			}
		}
	}
	return x
}

// importKeys are the hosts that the VirtualService makes known to sidecars.
func (vs *VirtualService) importKeys() []string {
	if vs == nil || !slices.Contains(vs.Gateways, MeshGateway) {
		return nil
	}
	var out []string
	for _, h := range vs.Destinations() {
		out = append(out, string(h))
	}
	return out
}

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

// Destinations iterates over the hosts that other VirtualServices than before make
// known to sidecars.
func (d Delta) Destinations() iter.Seq[pmap.Change[*ImportRow]] {
	return pmap.Diff(d.from.imports.rows, d.to.imports.rows)
}

// ImportedHosts iterates over the hosts that the class may have begun or ceased to
// see because VirtualServices route to them: none where it sees all that is
// exported to its namespace.
func (v *View) ImportedHosts(d Delta) iter.Seq[*HostRow] {
	return func(yield func(*HostRow) bool) {
		if !v.scope.restricted() {
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
// a listener.
func (v *View) imported(row *ImportRow, via string) bool {
	return row != nil && slices.ContainsFunc(row.importers, func(i *Importer) bool {
		return i.exportTo.VisibleTo(v.scope.Namespace) &&
			v.eachListener(via, func(l int) bool { return v.scope.importsRoutes(l, i.namespace, i.hosts) })
	})
}
