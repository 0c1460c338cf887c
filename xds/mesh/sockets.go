package mesh

import (
	"slices"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/discovery/rows"
	"github.com/portolan-mesh/portolan/storage/host"
	"github.com/portolan-mesh/portolan/xds/mesh/sidecar"
)

// NamedHosts returns the hosts that an egress listener imports by their full names.
func (v *View) NamedHosts(l EgressListener) []host.Name {
	return v.ask(Self, selfSidecar, "").(*sidecar.Sidecar).NamedHosts(l.Index)
}

// SocketService returns the service, and its port, to which a Unix domain socket without
// HTTP forwards its connections. It is the oldest that the egress listener names by full
// host and that has only one port, or only one without HTTP. It is nil if there is none.
func (v *View) SocketService(l EgressListener) (*ServiceRow, discovery.Port) {
	if !l.Protocol.IsServed() {
		return nil, discovery.Port{}
	}
	var oldest *ServiceRow
	var port discovery.Port
	for _, h := range v.NamedHosts(l) {
		s := v.ServiceAt(l, h)
		if s == nil {
			continue
		}
		if p, ok := soleStreamPort(s); ok && (oldest == nil || rows.Compare(s, oldest) < 0) {
			oldest, port = s, p
		}
	}
	return oldest, port
}

// soleStreamPort returns the only port of a service, else its only port without HTTP.
func soleStreamPort(s *ServiceRow) (discovery.Port, bool) {
	ports := slices.DeleteFunc(slices.Clone(s.Ports()), func(p discovery.Port) bool { return !p.Protocol.IsServed() })
	if len(ports) > 1 {
		ports = slices.DeleteFunc(ports, func(p discovery.Port) bool { return p.Protocol.IsHTTP() })
	}
	if len(ports) != 1 {
		return discovery.Port{}, false
	}
	return ports[0], true
}
