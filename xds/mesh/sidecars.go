package mesh

import (
	"cmp"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/labels"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/xds/mesh/sidecar"
)

// SidecarRow holds the Sidecars of a namespace.
type SidecarRow = sidecar.Row

// EgressListener is one egress listener of the proxies of a class.
type EgressListener = sidecar.Listener

// sidecarTable holds the Sidecars by namespace.
type sidecarTable struct{ tableOf[*SidecarRow] }

var sidecarRows = sidecarTable{tableOf[*SidecarRow]{sidecars}}

func (t sidecarTable) follow(from, to *PushContext) {
	eachObject(from, to, sidecarPath, func(c pmap.Change[*config.Config]) {
		namespace := cmp.Or(c.New, c.Old).Namespace
		row := t.rowsOf(to).Value(namespace).Replace(c.Old, c.New)
		t.put(to, namespace, row, row != nil)
	})
}

// selectSidecar returns the Sidecar that applies to a workload, nil for none.
func (p *PushContext) selectSidecar(namespace string, workload labels.Instance) *sidecar.Sidecar {
	all := sidecarRows.rowsOf(p)
	return sidecar.Select(all.Value(namespace), all.Value(p.mesh.GetRootNamespace()), workload)
}

// sidecar returns the Sidecar at a path, nil if there is none.
func (p *PushContext) sidecar(path string) *sidecar.Sidecar {
	object := p.inputs.Configs.Configs().Value(path)
	if object == nil {
		return nil
	}
	for _, s := range sidecarRows.rowsOf(p).Value(object.Namespace).All() {
		if s.Config == object {
			return s
		}
	}
	return nil
}
