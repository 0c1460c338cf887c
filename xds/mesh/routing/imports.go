package routing

import (
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/host"
)

// Imports returns the hosts that a VirtualService of the mesh gateway makes known to
// sidecars: those to which its routes send or mirror traffic. Each has the namespaces of
// the sidecars to which such a route applies, in order; nil for all.
func (vs *VirtualService) Imports() map[string][]string {
	if vs == nil || !slices.Contains(vs.Gateways, MeshGateway) {
		return nil
	}
	out := map[string][]string{}
	add := func(d *networking.Destination, from []string) {
		switch its, there := out[d.GetHost()]; {
		case there && (its == nil || from == nil):
			out[d.GetHost()] = nil
		case there:
			all := slices.Concat(its, from)
			slices.Sort(all)
			out[d.GetHost()] = slices.Compact(all)
		default:
			out[d.GetHost()] = from
		}
	}
	for _, r := range vs.Spec.GetHttp() {
		// sourceNamespace does not count in a match that names gateways.
		from := sourceNamespaces(r.GetMatch(), func(m *networking.HTTPMatchRequest) bool { return len(m.GetGateways()) == 0 })
		for d := range destinations(r) {
			add(d, from)
		}
	}
	for _, r := range vs.Spec.GetTcp() {
		for _, d := range r.GetRoute() {
			add(d.GetDestination(), sourceNamespaces(r.GetMatch(), nil))
		}
	}
	for _, r := range vs.Spec.GetTls() {
		for _, d := range r.GetRoute() {
			add(d.GetDestination(), sourceNamespaces(r.GetMatch(), nil))
		}
	}
	return out
}

// sourceNamespaces returns the namespaces of the sidecars to which a route applies, nil
// for all. A match for which counts is false applies to all.
func sourceNamespaces[M interface{ GetSourceNamespace() string }](matches []M, counts func(M) bool) []string {
	var out []string
	for _, m := range matches {
		if m.GetSourceNamespace() == "" || counts != nil && !counts(m) {
			return nil
		}
		out = append(out, m.GetSourceNamespace())
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Importer is a VirtualService of the mesh gateway that makes a host visible to sidecars
// that do not import the host themselves: its routes lead there, though no egress
// listener carries the host. It has only the fields on which this depends. It is never
// modified.
type Importer struct {
	Namespace string
	Hosts     []host.Name
	path      string
	exportTo  discovery.Visibility
	// from are the namespaces of the sidecars for which a route leads to the host, nil
	// for all.
	from []string
}

// NewImporter returns the importer of host h, nil if the VirtualService does not import
// it. from is vs.Imports().
func NewImporter(vs *VirtualService, h string, from map[string][]string) *Importer {
	its, imports := from[h]
	if !imports {
		return nil
	}
	return &Importer{
		path: vs.Config.Key().Path(), Namespace: vs.Config.Namespace, Hosts: vs.Hosts, exportTo: vs.ExportTo, from: its,
	}
}

// Equal says whether two importers are the same to every sidecar.
func (i *Importer) Equal(o *Importer) bool {
	return i.path == o.path && slices.Equal(i.Hosts, o.Hosts) && slices.Equal(i.exportTo, o.exportTo) && slices.Equal(i.from, o.from)
}

// Importers holds the importers of a host, by path.
type Importers struct {
	List []*Importer
}

// Any says whether the test holds for an importer that makes the host visible to sidecars
// of the namespace; false for nil.
func (r *Importers) Any(namespace string, test func(*Importer) bool) bool {
	return r != nil && slices.ContainsFunc(r.List, func(i *Importer) bool {
		return i.exportTo.VisibleTo(namespace) && (i.from == nil || slices.Contains(i.from, namespace)) && test(i)
	})
}

// Without returns the row without the importer at a path; nil counts as an empty row.
func (r *Importers) Without(path string) *Importers {
	if r == nil {
		return &Importers{}
	}
	return &Importers{slices.DeleteFunc(slices.Clone(r.List), func(i *Importer) bool { return i.path == path })}
}

// With returns the row with one more importer.
func (r *Importers) With(i *Importer) *Importers {
	list := append(slices.Clip(r.List), i)
	slices.SortFunc(list, func(a, b *Importer) int { return strings.Compare(a.path, b.path) })
	return &Importers{list}
}
