package service

import (
	"fmt"
	"iter"
	"strconv"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/discovery/rows"
	"github.com/portolan-mesh/portolan/storage/host"
)

// PortUse is a way in which a service uses a port number.
type PortUse string

// The uses. A service may use a port in several ways.
const (
	// PortHTTP: the service speaks HTTP there, and shares the port with all others that
	// do.
	PortHTTP PortUse = "http"
	// PortTCP: the service does not declare HTTP there.
	PortTCP PortUse = "tcp"
	// PortOpen is PortTCP of a service without an address that is not headless: it uses the
	// port at all addresses.
	PortOpen PortUse = "open"
	// PortHeadless is PortTCP of a headless service: it uses the port at the addresses of its
	// workloads.
	PortHeadless PortUse = "headless"
	// PortUndeclared is PortOpen of a port whose protocol is not declared.
	PortUndeclared PortUse = "undeclared"
	// PortRange is PortTCP of a service that has a range of addresses.
	PortRange PortUse = "range"
	// PortDynamic is PortHTTP of a service whose host proxies resolve request by request.
	// Such a service also has this use for AnyPort.
	PortDynamic PortUse = "dynamic"
	// PortTLS is PortTCP of a port that declares TLS. PortOpenTLS is PortOpen of such a
	// port. SNI names distinguish these services.
	PortTLS     PortUse = "tls"
	PortOpenTLS PortUse = "openTLS"
)

// AnyPort stands for every port, for the uses that have it.
const AnyPort = 0

// PortUser is a service that uses a port.
type PortUser struct {
	Host      host.Name
	Namespace string
}

// PortUseKey is the key of a use of a port in the port index.
func PortUseKey(use PortUse, port int) string { return string(use) + "/" + PortKey(port) }

// PortKey is a port as part of an index key.
func PortKey(port int) string { return strconv.Itoa(port) }

// Is says whether s, a service of the host, is the user of the port.
func (u PortUser) Is(s *rows.Service) bool { return s != nil && s.Namespace == u.Namespace }

// AgedUse is the PortUseKey of a use and the age of the service. Ages are unique.
type AgedUse struct{ Key, Age string }

// PortUses returns the port uses of the services of a host.
func (r *Host) PortUses() map[AgedUse]PortUser {
	if r == nil {
		return nil
	}
	out := map[AgedUse]PortUser{}
	for _, s := range r.Services {
		aged := age(s)
		for _, p := range s.Ports() {
			for use := range usesOf(s, p) {
				out[AgedUse{PortUseKey(use, p.Number), aged}] = PortUser{s.Hostname, s.Namespace}
				if use == PortDynamic {
					out[AgedUse{PortUseKey(use, AnyPort), aged}] = PortUser{s.Hostname, s.Namespace}
				}
			}
		}
	}
	return out
}

// usesOf iterates over the ways in which a service uses one of its ports.
func usesOf(s *rows.Service, p discovery.Port) iter.Seq[PortUse] {
	return func(yield func(PortUse) bool) {
		switch {
		case !p.Protocol.IsServed():
			return
		case p.Protocol.IsHTTP():
			_ = yield(PortHTTP) && (s.Service().Resolution != discovery.DynamicDNS || yield(PortDynamic))
			return
		}
		headless, tls := s.Headless(), p.Protocol.IsTLS()
		open := s.Open() && !headless
		_ = yield(PortTCP) &&
			(!headless || yield(PortHeadless)) &&
			(!tls || yield(PortTLS)) &&
			(!tls || !open || yield(PortOpenTLS)) &&
			(!open || yield(PortOpen)) &&
			(!open || p.Protocol != discovery.Unsupported || yield(PortUndeclared)) &&
			(len(s.Ranges()) == 0 || yield(PortRange))
	}
}

// age returns a key that sorts like CompareServices.
func age(r *rows.Service) string {
	s := r.Service()
	const beforeAll = 1 << 40 // seconds, so that no time is negative
	return fmt.Sprintf("%020d\x00%s\x00%s\x00%s\x00%s", s.CreationTime.Unix()+beforeAll,
		s.Attributes.Name, s.Attributes.Namespace, r.Hostname, r.Namespace)
}

// Routable returns the ports of a host, over its namespaces, on which requests may be
// routed by HTTP. Some proxies also do so for ports that declare no protocol.
func (r *Host) Routable() map[int]bool {
	if r == nil {
		return nil
	}
	out := map[int]bool{}
	for _, row := range r.Services {
		for _, s := range row.Services {
			for _, p := range s.Ports {
				if p.Protocol.IsHTTP() || p.Protocol == discovery.Unsupported {
					out[p.Number] = true
				}
			}
		}
	}
	return out
}
