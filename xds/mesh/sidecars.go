package mesh

import (
	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/labels"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/xds/mesh/class"
	"github.com/portolan-mesh/portolan/xds/mesh/sidecar"
)

// EgressListener is one egress listener of the proxies of a class.
type EgressListener = sidecar.Listener

// sidecarTable holds the Sidecars by config path.
type sidecarTable struct{ tableOf[*sidecar.Sidecar] }

var sidecarRows = sidecarTable{tableOf[*sidecar.Sidecar]{sidecars}}

func (t sidecarTable) follow(from, to *PushContext) {
	eachObject(from, to, sidecarPath, func(c pmap.Change[*config.Config]) {
		var s *sidecar.Sidecar
		if c.HasNew {
			s = sidecar.New(c.New)
		}
		t.put(to, c.Key, s, c.HasNew)
	})
}

// followSidecars follows the selectors of Sidecars.
func (t attachmentTable) followSidecars(from, to *PushContext) {
	t.followObjects(from, to, class.Sidecar, sidecarPath, func(c *config.Config) labels.Instance {
		return c.Spec.(*networking.Sidecar).GetWorkloadSelector().GetLabels()
	})
}

// sidecarFor chooses the Sidecar that applies to a proxy: the oldest in its namespace
// whose selector matches, else the oldest there without a selector, else the root
// namespace's oldest without one. (Istio: getSidecarScope.)
func (p *PushContext) sidecarFor(who attachedTo) []string {
	own, root := p.attachmentsIn(class.Sidecar, who.Namespace), p.attachmentsIn(class.Sidecar, p.mesh.GetRootNamespace())
	best := own.oldest(func(a *attachment) bool { return len(a.selector) > 0 && a.selector.SubsetOf(who.workload.Labels) })
	for _, row := range []attachmentRow{own, root} {
		if best == nil {
			best = row.oldest(func(a *attachment) bool { return len(a.selector) == 0 })
		}
	}
	if best == nil {
		return nil
	}
	return []string{best.Key().Path()}
}

// sidecarOf returns the Sidecar of a class, nil if it has none.
func (p *PushContext) sidecarOf(c Class) *sidecar.Sidecar {
	for path := range c.Attached.Names(class.Sidecar) {
		return sidecarRows.rowsOf(p).Value(path)
	}
	return nil
}
