package mesh

import (
	"slices"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/discovery/rows"
	"github.com/portolan-mesh/portolan/storage/host"
	"github.com/portolan-mesh/portolan/xds/mesh/sidecar"
)

// NamedHosts are the hosts that an egress listener imports by their full names.
func (v *View) NamedHosts(l EgressListener) []host.Name {
	return v.ask(Self, selfSidecar, "").(*sidecar.Sidecar).NamedHosts(l.Index)
}

// SocketService is the service that gets the connections of a socket without HTTP, and
// its port: the oldest that the egress listener names by its full host, and that has one
// port, or one without HTTP. It is nil where there is none.
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

// soleStreamPort is the port of a service that has one, else its one port without HTTP.
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
