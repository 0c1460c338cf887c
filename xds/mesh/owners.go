package mesh

import (
	"iter"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/claim"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/host"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// OwnerOf returns who owns the host of a row: the namespace of its oldest service.
func OwnerOf(row *HostRow) claim.Owner {
	first := row.Services[0]
	out := claim.Owner{Host: row.Hostname, Namespace: first.Namespace}
	if a := first.Service().Attributes; a.Provider == discovery.External {
		out.Object = config.Key{Kind: schema.ServiceEntry, Namespace: a.Namespace, Name: a.Name}
	}
	return out
}

// Crossings iterates over the hosts of other namespaces for which an object speaks by some of
// its claims. Objects of the root namespace are the mesh's own, and cross nothing.
func (p *PushContext) Crossings(c *config.Config, claims ...claim.Claim) iter.Seq[claim.Crossing] {
	return func(yield func(claim.Crossing) bool) {
		if c.Namespace == p.mesh.GetRootNamespace() {
			return
		}
		for _, one := range claims {
			for row := range p.hostsMatching(one.Host) {
				owner := OwnerOf(row)
				if one.Crosses(c.Namespace, owner) && !yield(claim.Crossing{Claim: one, Owner: owner}) {
					return
				}
			}
		}
	}
}

// Consents returns the HostGrant by which a namespace lets objects of a kind in another speak
// for one of its hosts; nil for none. As with rights, only objects of the store count.
func (p *PushContext) Consents(owner string, from claim.From, h host.Name) *config.Config {
	for object := range p.inputs.Configs.List(schema.HostGrant, owner) {
		if grant, ok := object.Spec.(*claim.HostGrant); ok && object.Source == "" && grant.Allows(from.Kind, from.Namespace, h) {
			return object
		}
	}
	return nil
}
