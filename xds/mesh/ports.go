package mesh

import (
	"fmt"
	"iter"
	"strconv"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/host"
	"github.com/portolan-mesh/portolan/storage/pmap"
)

// PortUse is a way in which a service uses a port number.
type PortUse string

// The uses. A service may use a port in several ways.
const (
	// PortHTTP: the service speaks HTTP there, and shares the port with all that do.
	PortHTTP PortUse = "http"
	// PortTCP: the service does not declare HTTP there.
	PortTCP PortUse = "tcp"
	// PortOpen is PortTCP of a service without an address: it uses the port at every
	// address.
	PortOpen PortUse = "open"
	// PortUndeclared is PortOpen of a port whose protocol is not declared.
	PortUndeclared PortUse = "undeclared"
	// PortRange is PortTCP of a service that has a range of addresses.
	PortRange PortUse = "range"
	// PortDynamic is PortHTTP of a service whose proxies resolve the host of each
	// request. AnyPort is a port of all such services.
	PortDynamic PortUse = "dynamic"
	// PortTLS is PortTCP of a port that declares TLS, and PortOpenTLS is PortOpen of
	// one: the name that a client asks for tells the services apart.
	PortTLS     PortUse = "tls"
	PortOpenTLS PortUse = "openTLS"
)

// AnyPort stands for every port of the uses that have it.
const AnyPort = 0

// portUser is a service that uses a port.
type portUser struct {
	host      host.Name
	namespace string
}

// ports is the port index: the services that use a port in some way, the oldest
// first. A row changes with these services, and not with what else is known of them.
type ports struct{ groups[portUser] }

var portRows = ports{groupsOf[portUser](Ports)}

// PortUseKey is the key of a use of a port in the port index.
func PortUseKey(use PortUse, port int) string { return string(use) + "/" + portKey(port) }

func portKey(port int) string { return strconv.Itoa(port) }

func (t ports) follow(from, to *PushContext) {
	for c := range hostRows.diff(from, to) {
		before, after := c.Old.portUses(), c.New.portUses()
		for of := range before {
			if _, still := after[of]; !still {
				t.remove(to, of.key, of.age)
			}
		}
		for of, user := range after {
			if _, already := before[of]; !already {
				t.add(to, of.key, of.age, user)
			}
		}
	}
}

// agedUse is the PortUseKey of a use and the age of the service; no two services
// have one age.
type agedUse struct{ key, age string }

// portUses returns the port uses of the services of a host.
func (r *HostRow) portUses() map[agedUse]portUser {
	if r == nil {
		return nil
	}
	out := map[agedUse]portUser{}
	for _, s := range r.Services {
		aged := age(s)
		for _, p := range s.Ports() {
			for use := range usesOf(s, p) {
				out[agedUse{PortUseKey(use, p.Number), aged}] = portUser{s.Hostname, s.Namespace}
				if use == PortDynamic {
					out[agedUse{PortUseKey(use, AnyPort), aged}] = portUser{s.Hostname, s.Namespace}
				}
			}
		}
	}
	return out
}

// usesOf are the ways in which a service uses one of its ports.
func usesOf(s *ServiceRow, p discovery.Port) iter.Seq[PortUse] {
	return func(yield func(PortUse) bool) {
		switch {
		case !p.Protocol.IsServed():
			return
		case p.Protocol.IsHTTP():
			_ = yield(PortHTTP) && (s.Service().Resolution != discovery.DynamicDNS || yield(PortDynamic))
			return
		}
		open, tls := s.Open(), p.Protocol.IsTLS()
		_ = yield(PortTCP) &&
			(!tls || yield(PortTLS)) &&
			(!tls || !open || yield(PortOpenTLS)) &&
			(!open || yield(PortOpen)) &&
			(!open || p.Protocol != discovery.Unsupported || yield(PortUndeclared)) &&
			(len(s.Ranges()) == 0 || yield(PortRange))
	}
}

// age sorts as CompareServices does.
func age(r *ServiceRow) string {
	s := r.Service()
	const beforeAll = 1 << 40 // seconds, so that no time is negative
	return fmt.Sprintf("%020d\x00%s\x00%s\x00%s\x00%s", s.CreationTime.Unix()+beforeAll,
		s.Attributes.Name, s.Attributes.Namespace, r.Hostname, r.Namespace)
}

// ServicesOnPort are the services that use a port so and that the proxy sees through
// a listener, the oldest first. A caller that stops early depends on no younger one.
func (v *View) ServicesOnPort(l EgressListener, use PortUse, port int) iter.Seq[*ServiceRow] {
	return func(yield func(*ServiceRow) bool) {
		for user := range v.ask(Ports, PortUseKey(use, port), "").(pmap.Map[portUser]).Values() {
			if s := v.ServiceAt(l, user.host); user.is(s) && !yield(s) {
				return
			}
		}
	}
}

// is says whether a service of the host is the user of the port.
func (u portUser) is(s *ServiceRow) bool { return s != nil && s.Namespace == u.namespace }

// PortUsed says whether the proxy sees a service through a listener that uses a port
// so. If there is one, the answer depends on nothing but the oldest of these.
func (v *View) PortUsed(l EgressListener, use PortUse, port int) bool {
	for user := range portRows.of(v.context).Value(PortUseKey(use, port)).Values() {
		if user.is(v.service(user.host, v.listenerArgs(l.Index))) {
			return v.ServiceAt(l, user.host) != nil
		}
	}
	for range v.ServicesOnPort(l, use, port) {
		return true
	}
	return false
}

// PortDynamic says whether the proxy, through any of its egress listeners, sees a service
// on a port whose hosts it resolves request by request.
func (v *View) PortDynamic(port int) bool {
	for user := range v.ask(Ports, PortUseKey(PortDynamic, port), "").(pmap.Map[portUser]).Values() {
		if user.is(v.Service(user.host)) {
			return true
		}
	}
	return false
}
