package mesh

import (
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/labels"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/xds/mesh/peer"
	"github.com/portolan-mesh/portolan/xds/mesh/service"
)

// peers holds the PeerAuthentications by namespace.
type peers struct{ tableOf[*peer.Policies] }

var peerRows = peers{tableOf[*peer.Policies]{Peers}}

func (t peers) follow(from, to *PushContext) {
	eachObject(from, to, peerAuthenticationPath, func(c pmap.Change[*config.Config]) {
		object := c.New
		if object == nil {
			object = c.Old
		}
		row := t.rowsOf(to).Value(object.Namespace).Replace(c.Old, c.New)
		t.put(to, object.Namespace, row, row != nil)
	})
}

// Peers returns what decides how the workloads of a namespace take connections.
func (v *View) Peers(namespace string) peer.Scope {
	root := v.push.mesh.GetRootNamespace()
	out := peer.Scope{Mesh: v.ask(Peers, root, "").(*peer.Policies)}
	if namespace != root {
		out.Own = v.ask(Peers, namespace, "").(*peer.Policies)
	}
	return out
}

// PeersOf is Peers of a View, for operators.
func (p *PushContext) PeersOf(namespace string) peer.Scope {
	return (&View{push: p}).Peers(namespace)
}

// OwnPeers returns what decides how the workload takes connections, and the labels by
// which it is selected. Only a workload's own resources may ask.
func (v *View) OwnPeers() (peer.Scope, labels.Instance) {
	for _, ip := range v.IPs() {
		v.ask(Instances, service.AddressKey(ip), "") // the labels follow from these
	}
	v.InNamespace(v.class.Namespace) // recorded, since it decides which policies count
	return v.Peers(v.class.Namespace), labels.Parse(v.ask(Self, selfOwnLabels, "").(string))
}
