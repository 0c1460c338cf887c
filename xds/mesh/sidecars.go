package mesh

import (
	"cmp"
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/host"
	"github.com/portolan-mesh/portolan/storage/labels"
	"github.com/portolan-mesh/portolan/storage/pmap"
)

// Sidecar is one Sidecar object.
type Sidecar struct {
	Config *config.Config
	Spec   *networking.Sidecar
	egress []egressHosts // parallel to Spec.Egress
	// egressProxy is where traffic to unknown hosts goes, nil for its own way.
	egressProxy *EgressProxy
}

// EgressProxy is a port of a service, or of a subset of it, to which a sidecar sends
// the traffic to hosts that it does not know.
type EgressProxy struct {
	Host   host.Name
	Port   int
	Subset string
}

// is says whether the proxy is a service of the host.
func (p *EgressProxy) is(h host.Name) bool { return p != nil && p.Host == h }

// SidecarRow is the Sidecars of a namespace: those with a selector first, then
// the oldest.
type SidecarRow struct {
	Sidecars []*Sidecar
}

func (s *Sidecar) selector() labels.Instance { return s.Spec.GetWorkloadSelector().GetLabels() }

// sidecarTable has the Sidecars by namespace.
type sidecarTable struct{ tableOf[*SidecarRow] }

var sidecarRows = sidecarTable{tableOf[*SidecarRow]{sidecars}}

func (t sidecarTable) follow(from, to *PushContext) {
	eachObject(from, to, sidecarPath, func(c pmap.Change[*config.Config]) {
		namespace := cmp.Or(c.New, c.Old).Namespace
		list := slices.DeleteFunc(slices.Clone(t.of(to).Value(namespace).all()), func(s *Sidecar) bool { return s.Config == c.Old })
		if c.HasNew {
			list = append(list, newSidecar(c.New))
		}
		slices.SortFunc(list, compareSidecars)
		t.put(to, namespace, &SidecarRow{Sidecars: list}, len(list) > 0)
	})
}

func compareSidecars(a, b *Sidecar) int {
	if as, bs := len(a.selector()) > 0, len(b.selector()) > 0; as != bs {
		if as {
			return -1
		}
		return 1
	}
	return config.Compare(a.Config, b.Config)
}

func newSidecar(c *config.Config) *Sidecar {
	s := &Sidecar{Config: c, Spec: c.Spec.(*networking.Sidecar)}
	for _, e := range s.Spec.GetEgress() {
		s.egress = append(s.egress, parseEgressHosts(e.GetHosts()))
	}
	policy := s.Spec.GetOutboundTrafficPolicy()
	if to := policy.GetEgressProxy(); to != nil && policy.GetMode() == networking.OutboundTrafficPolicy_ALLOW_ANY {
		name := host.Resolve(to.GetHost(), c.Namespace, c.Domain)
		s.egressProxy = &EgressProxy{host.Name(strings.ToLower(string(name))), int(to.GetPort().GetNumber()), to.GetSubset()}
	}
	return s
}

// selectSidecar returns the Sidecar of a workload: the first in its namespace whose
// selector matches, else the one there without a selector, else the one of the root
// namespace without a selector, else nil. (Istio: getSidecarScope.)
func (p *PushContext) selectSidecar(namespace string, workload labels.Instance) *Sidecar {
	for _, s := range sidecarRows.of(p).Value(namespace).all() {
		if s.selector().SubsetOf(workload) {
			return s
		}
	}
	for _, s := range sidecarRows.of(p).Value(p.mesh.GetRootNamespace()).all() {
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
	for _, s := range sidecarRows.of(p).Value(object.Namespace).all() {
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
