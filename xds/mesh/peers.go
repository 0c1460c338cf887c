package mesh

import (
	"cmp"
	"iter"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/labels"
	"github.com/portolan-mesh/portolan/storage/phase"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/xds/mesh/peer"
	"github.com/portolan-mesh/portolan/xds/mesh/service"
)

// peers holds the PeerAuthentications by namespace, with how far all follow them.
type peers struct{ tableOf[*peer.Policies] }

var peerRows = peers{tableOf[*peer.Policies]{Peers}}

func (t peers) follow(from, to *PushContext) {
	eachObject(from, to, peerPhasePath, func(c pmap.Change[*config.Config]) {
		object := cmp.Or(c.New, c.Old)
		if object.Name != schema.PeerPhaseName {
			return
		}
		var stored *phase.Peers
		if c.HasNew {
			stored = c.New.Spec.(*phase.Peers)
		}
		row := t.rowsOf(to).Value(object.Namespace).WithStored(stored)
		t.put(to, object.Namespace, row, row != nil)
	})
	eachObject(from, to, peerAuthenticationPath, func(c pmap.Change[*config.Config]) {
		object := cmp.Or(c.New, c.Old)
		row := t.rowsOf(to).Value(object.Namespace).Replace(c.Old, c.New)
		t.put(to, object.Namespace, row, row != nil)
	})
}

// Peers returns what decides how the workloads of a namespace take connections.
func (v *View) Peers(namespace string) peer.Scope {
	root := v.RootNamespace()
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

// PeerChanges iterates over the namespaces whose workloads and clients do not follow their
// PeerAuthentications yet, or whose PeerPhase is of no use, in order.
func (p *PushContext) PeerChanges() iter.Seq2[string, *peer.Policies] {
	return func(yield func(string, *peer.Policies) bool) {
		for namespace, row := range peerRows.rowsOf(p).All() {
			if (row.Phase() != peer.Settled || row.Stale()) && !yield(namespace, row) {
				return
			}
		}
	}
}

// OwnPeers returns what decides how the workload takes connections, and the labels by
// which it is selected. Only a workload's own resources may ask.
func (v *View) OwnPeers() (peer.Scope, labels.Instance) {
	for _, ip := range v.IPs() {
		v.ask(Instances, service.AddressKey(ip), "") // the labels follow from these
	}
	v.InNamespace(v.class.Namespace) // recorded, since it decides which policies count
	v.ask(Self, selfPeers, "")       // recorded, since it names them
	return v.Peers(v.class.Namespace), labels.Parse(v.ask(Self, selfOwnLabels, "").(string))
}

// selectedPeers returns the PeerAuthentications that count for the workload.
func (v *View) selectedPeers() SelectedPolicies {
	var own []*config.Config
	if v.workload != nil {
		for _, p := range v.push.PeersOf(v.class.Namespace).Selected(v.workload.place().Labels) {
			own = append(own, p.Config)
		}
	}
	return selected(schema.PeerAuthentication, own)
}
