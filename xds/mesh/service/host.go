package service

import (
	"slices"

	"github.com/portolan-mesh/portolan/discovery/rows"
	"github.com/portolan-mesh/portolan/storage/host"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/xds/mesh/sidecar"
)

// Host holds all services of one name, one per namespace, in the order of their creation.
type Host struct {
	Hostname host.Name
	Services []*rows.Service
}

// Equal says whether two hosts have the same services; false for nil.
func (r *Host) Equal(o *Host) bool {
	return r != nil && o != nil && slices.Equal(r.Services, o.Services)
}

// With returns the row after changes to the services of its host, nil where
// none is left.
func (r *Host) With(h host.Name, changes []pmap.Change[*rows.Service]) *Host {
	var services []*rows.Service
	if r != nil {
		services = slices.Clone(r.Services)
	}
	for _, c := range changes {
		services = slices.DeleteFunc(services, func(s *rows.Service) bool { return s == c.Old })
		if c.HasNew {
			services = append(services, c.New)
		}
	}
	if len(services) == 0 {
		return nil
	}
	slices.SortFunc(services, rows.Compare)
	row := &Host{Hostname: h, Services: services}
	if row.Equal(r) {
		return r
	}
	return row
}

// ExternalNames returns the hosts that the services of a host stand for, each once, in order.
func (r *Host) ExternalNames() []host.Name {
	if r == nil {
		return nil
	}
	var out []host.Name
	for _, s := range r.Services {
		if name := s.ExternalName(); name != "" {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// SeenAs says whether every client that sees a service of one host sees one of the other, in the same
// namespace and with the same external name; false for nil.
func (r *Host) SeenAs(o *Host) bool {
	return r != nil && o != nil && slices.EqualFunc(r.Services, o.Services, func(a, b *rows.Service) bool {
		return a.Namespace == b.Namespace && a.ExternalName() == b.ExternalName() &&
			slices.Equal(a.Service().Attributes.ExportTo, b.Service().Attributes.ExportTo)
	})
}

// Pick returns the service of a host that the scope imports, nil for none. Only services
// exported to the scope's namespace count. One of that namespace wins, then the highest
// rank, then the oldest. A nil rank means that all are imported alike.
func (r *Host) Pick(scope sidecar.Scope, rank func(*rows.Service) sidecar.Rank) *rows.Service {
	var first *rows.Service
	best := sidecar.NotImported
	for _, s := range r.Services {
		if !s.Service().Attributes.ExportTo.VisibleTo(scope.Namespace) {
			continue
		}
		its := sidecar.OfAny
		if rank != nil {
			its = rank(s)
		}
		if its != sidecar.NotImported && s.Namespace == scope.Namespace {
			return s
		}
		if its > best {
			first, best = s, its
		}
	}
	return first
}
