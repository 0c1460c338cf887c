package mesh

import (
	"slices"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/labels"
	"github.com/portolan-mesh/portolan/storage/pmap"
)

// Sidecar is one Sidecar object.
type Sidecar struct {
	Config *config.Config
	Spec   *networking.Sidecar
	egress []egressHosts // parallel to Spec.Egress
}

// SidecarRow is the Sidecars of a namespace: those with a selector first, then
// the oldest.
type SidecarRow struct {
	Sidecars []*Sidecar
}

func (s *Sidecar) selector() labels.Instance { return s.Spec.GetWorkloadSelector().GetLabels() }

// nextSidecars follows one changed Sidecar.
func nextSidecars(sidecars pmap.Map[*SidecarRow], c pmap.Change[*config.Config]) pmap.Map[*SidecarRow] {
	object := c.New
	if object == nil {
		object = c.Old
	}
	var list []*Sidecar
	if row := sidecars.Value(object.Namespace); row != nil {
		list = slices.DeleteFunc(slices.Clone(row.Sidecars), func(s *Sidecar) bool { return s.Config == c.Old })
	}
	if c.HasNew {
		list = append(list, newSidecar(c.New))
	}
	if len(list) == 0 {
		return sidecars.Delete(object.Namespace)
	}
	slices.SortFunc(list, func(a, b *Sidecar) int {
		if as, bs := len(a.selector()) > 0, len(b.selector()) > 0; as != bs {
			if as {
				return -1
			}
			return 1
		}
		return config.Compare(a.Config, b.Config)
	})
	return sidecars.Set(object.Namespace, &SidecarRow{Sidecars: list})
}

func newSidecar(c *config.Config) *Sidecar {
	s := &Sidecar{Config: c, Spec: c.Spec.(*networking.Sidecar)}
	for _, e := range s.Spec.GetEgress() {
		s.egress = append(s.egress, parseEgressHosts(e.GetHosts()))
	}
	return s
}

// selectSidecar is the Sidecar of a workload: the first of its namespace whose
// selector matches, else that without one, else that of the root namespace
// without one, else nil. (Istio: getSidecarScope.)
func (p *PushContext) selectSidecar(namespace string, workload labels.Instance) *Sidecar {
	for _, s := range p.sidecars.Value(namespace).all() {
		if s.selector().SubsetOf(workload) {
			return s
		}
	}
	for _, s := range p.sidecars.Value(p.mesh.GetRootNamespace()).all() {
		if len(s.selector()) == 0 {
			return s
		}
	}
	return nil
}

// sidecar finds one by its path, nil where there is none.
func (p *PushContext) sidecar(path string) *Sidecar {
	object := p.inputs.Configs.Configs().Value(path)
	if object == nil {
		return nil
	}
	for _, s := range p.sidecars.Value(object.Namespace).all() {
		if s.Config == object {
			return s
		}
	}
	return nil
}

func (r *SidecarRow) all() []*Sidecar {
	if r == nil {
		return nil
	}
	return r.Sidecars
}
