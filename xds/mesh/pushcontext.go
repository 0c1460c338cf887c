package mesh

import (
	"github.com/portolan-mesh/portolan/xds/mesh/service"
	"github.com/portolan-mesh/portolan/xds/meshconfig"
)

// PushContext is the mesh as one push sees it. It is never modified; the next context
// shares all unchanged parts. The nil PushContext is the empty mesh.
type PushContext struct {
	inputs Inputs
	mesh   *meshconfig.Config // see meshOf
	tables [tableCount]any    // the rows of each table as a pmap.Map; see tableOf.rowsOf
	step   step
	merged *merged
}

// New builds the context of inputs from nothing. The result equals what Next derives by
// any sequence of changes.
func New(in Inputs) *PushContext {
	if in.MeshFile == nil {
		in.MeshFile = meshconfig.Default()
	}
	out := (&PushContext{}).next(in, meshOf(nil, in))
	out.step = step{self: &identity{}}
	return out
}

// Next derives the context of newer inputs. Inputs without the mesh configuration of a file keep
// that of p. The cost follows the difference, but a mesh configuration that changes how other
// tables are derived rebuilds everything.
func (p *PushContext) Next(in Inputs) *PushContext {
	if p == nil {
		return New(in)
	}
	if in.MeshFile == nil {
		in.MeshFile = p.inputs.MeshFile
	}
	config := meshOf(p, in)
	if config != p.mesh && !sameTables(config, p.mesh) {
		return New(in)
	}
	next := p.next(in, config)
	next.step = stepTo(p, next)
	return next
}

func (p *PushContext) next(in Inputs, config *meshconfig.Config) *PushContext {
	next := *p
	next.inputs, next.mesh = in, config
	for t := range tables {
		tables[t].follow(p, &next)
	}
	if p.merged == nil || gatewayRows.rowsOf(p) != gatewayRows.rowsOf(&next) {
		next.merged = p.merged.next()
	}
	return &next
}

// Revision is the revision of the configuration that the context was made from.
func (p *PushContext) Revision() int64 {
	if p == nil {
		return 0
	}
	return p.inputs.Configs.Revision()
}

// MeshConfig returns the mesh configuration in effect: the object over the file over the
// defaults. Two contexts with the same one have the same pointer.
func (p *PushContext) MeshConfig() *meshconfig.Config {
	if p == nil {
		return meshconfig.Default()
	}
	return p.mesh
}

// Inputs returns the inputs of the context.
func (p *PushContext) Inputs() Inputs {
	if p == nil {
		return Inputs{}
	}
	return p.inputs
}

// Instances returns the endpoints at an address.
func (p *PushContext) Instances(address string) InstancesAt {
	return instanceRows.rowsOf(p).Value(service.AddressKey(address))
}
