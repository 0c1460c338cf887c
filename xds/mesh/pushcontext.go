package mesh

import (
	"strings"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/pmap"
)

// The kinds of objects that an index follows.
const (
	networkingGroup     = "networking.istio.io"
	kindVirtualService  = "VirtualService"
	kindDestinationRule = "DestinationRule"
	kindGateway         = "Gateway"
	kindSidecar         = "Sidecar"
	kindServiceEntry    = "ServiceEntry"
	kindWorkloadEntry   = "WorkloadEntry"
	kindWorkloadGroup   = "WorkloadGroup"
)

// PushContext is the mesh as one push sees it. It is never modified; the next
// one shares with it all that did not change. The nil PushContext is the empty
// mesh.
type PushContext struct {
	inputs    Inputs
	mesh      *Config
	hosts     hostIndex
	routes    routeIndex
	rules     ruleIndex
	gateways  pmap.Map[*Gateway]    // by config path
	sidecars  pmap.Map[*SidecarRow] // by namespace
	imports   importIndex
	selectors selectorIndex
	instances pmap.Map[InstancesAt] // by address
	step      step
}

// New builds the context of inputs from nothing. It equals what Next arrives at
// by any sequence of changes.
func New(in Inputs) *PushContext {
	if in.Mesh == nil {
		in.Mesh = DefaultConfig()
	}
	empty := &PushContext{
		inputs: Inputs{Mesh: in.Mesh}, mesh: in.Mesh,
		routes: routeIndex{defaultExport: in.Mesh.GetDefaultVirtualServiceExportTo()},
		rules:  ruleIndex{defaultExport: ruleExport(in.Mesh.GetDefaultDestinationRuleExportTo())},
	}
	out := empty.next(in)
	out.step = step{self: &identity{}}
	return out
}

// Next derives the context of newer inputs; without a mesh configuration they
// keep that of p. Its cost follows what differs, except that a new mesh
// configuration builds everything again.
func (p *PushContext) Next(in Inputs) *PushContext {
	if p != nil && in.Mesh == nil {
		in.Mesh = p.mesh
	}
	if p == nil || in.Mesh != p.mesh {
		return New(in)
	}
	next := p.next(in)
	next.step = stepTo(p, next)
	return next
}

func (p *PushContext) next(in Inputs) *PushContext {
	next := *p
	next.inputs = in
	next.hosts = p.hosts.next(p.inputs.Services, in.Services)
	next.instances = nextInstances(p.instances, p.inputs.Endpoints, in.Endpoints)
	for c := range pmap.Diff(p.inputs.Configs.Configs(), in.Configs.Configs()) {
		next.follow(c)
	}
	return &next
}

// follow takes over one changed object.
func (p *PushContext) follow(c pmap.Change[*config.Config]) {
	switch kind, _ := strings.CutPrefix(kindOf(c.Key), networkingGroup+"/"); kind {
	case kindVirtualService:
		old := p.routes.virtual.Value(c.Key)
		p.routes = p.routes.next(c)
		curr := p.routes.virtual.Value(c.Key)
		p.imports = p.imports.next(old, curr)
		p.selectors = p.selectors.next(old.sourceSelectors(), curr.sourceSelectors())
	case kindDestinationRule:
		p.rules = p.rules.next(c)
	case kindGateway:
		p.gateways = nextGateways(p.gateways, c)
	case kindSidecar:
		p.sidecars = nextSidecars(p.sidecars, c)
	}
}

// kindOf is the "group/kind" of a config path.
func kindOf(path string) string {
	group, rest, _ := strings.Cut(path, "/")
	kind, _, _ := strings.Cut(rest, "/")
	return group + "/" + kind
}

// Revision is the revision of the configuration that the context was made from.
func (p *PushContext) Revision() int64 {
	if p == nil {
		return 0
	}
	return p.inputs.Configs.Revision()
}

// Inputs are what the context was made from.
func (p *PushContext) Inputs() Inputs {
	if p == nil {
		return Inputs{}
	}
	return p.inputs
}

// Mesh is the mesh configuration.
func (p *PushContext) Mesh() *Config { return p.mesh }

// Instances are the endpoints at an address.
func (p *PushContext) Instances(address string) InstancesAt {
	return p.instances.Value(addressKey(address))
}
