package mesh

import (
	"iter"

	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/xds/mesh/service"
)

// ports is the port index: for each use of a port the services that use it so, the oldest
// first. A row changes only when a service begins or ceases to be in it.
type ports struct{ groups[service.PortUser] }

var portRows = ports{groupsOf[service.PortUser](Ports)}

func (t ports) follow(from, to *PushContext) {
	for c := range hostRows.diff(from, to) {
		before, after := c.Old.PortUses(), c.New.PortUses()
		for of := range before {
			if _, still := after[of]; !still {
				t.remove(to, of.Key, of.Age)
			}
		}
		for of, user := range after {
			if _, already := before[of]; !already {
				t.add(to, of.Key, of.Age, user)
			}
		}
	}
}

// ServicesOnPort iterates over the services with the given use of a port that the proxy
// sees through a listener, the oldest first. A caller that stops early does not depend on
// younger ones.
func (v *View) ServicesOnPort(l EgressListener, use service.PortUse, port int) iter.Seq[*ServiceRow] {
	return func(yield func(*ServiceRow) bool) {
		for user := range v.ask(Ports, service.PortUseKey(use, port), "").(pmap.Map[service.PortUser]).Values() {
			if s := v.ServiceAt(l, user.Host); user.Is(s) && !yield(s) {
				return
			}
		}
	}
}

// PortUsed says whether the proxy sees, through a listener, a service with the given use
// of a port. If so, the answer depends only on the oldest of them.
func (v *View) PortUsed(l EgressListener, use service.PortUse, port int) bool {
	for user := range portRows.rowsOf(v.push).Value(service.PortUseKey(use, port)).Values() {
		if user.Is(v.service(user.Host, v.listenerArgs(l.Index))) {
			return v.ServiceAt(l, user.Host) != nil
		}
	}
	for range v.ServicesOnPort(l, use, port) {
		return true
	}
	return false
}

// PortDynamic says whether the proxy sees, through any egress listener, a service on a
// port whose hosts the proxy resolves request by request.
func (v *View) PortDynamic(port int) bool {
	for user := range v.ask(Ports, service.PortUseKey(service.PortDynamic, port), "").(pmap.Map[service.PortUser]).Values() {
		if user.Is(v.Service(user.Host)) {
			return true
		}
	}
	return false
}
