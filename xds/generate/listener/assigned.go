package listener

import (
	"net/netip"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/host"
	"github.com/portolan-mesh/portolan/xds/envoy"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/names"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// assignedNames yields the listeners of a service's port at its assigned addresses, if
// the proxy's machine has these as local addresses (DNSCapture).
func assignedNames(v *mesh.View, s *mesh.ServiceRow, p discovery.Port, yield func(string) bool) bool {
	if !v.Shape().DNSCapture {
		return true
	}
	for _, ip := range v.Shape().Assigned(s) {
		if !yield(names.Listener(ip, uint32(p.Number))) {
			return false
		}
	}
	return true
}

// assignedListener makes the listener at an address that was assigned to a service, nil if the
// proxy sees no such service. Everything that comes here is for that service, even if
// others use the port.
func assignedListener(v *mesh.View, name string, l mesh.EgressListener, port int) (proto.Message, []resource.Need, error) {
	ip, err := netip.ParseAddr(addressOf(name))
	if err != nil || !v.Shape().DNSCapture {
		return nil, nil, nil
	}
	for h := range v.HostsAt(ip.String()) {
		row := v.ServiceAt(l, host.Name(h))
		if row == nil || !slices.Contains(v.Shape().Assigned(row), ip.String()) {
			continue
		}
		p, ok := row.Port(port)
		if !ok || !p.Protocol.IsServed() {
			continue
		}
		c := chains{view: v, egress: l, name: name, port: port}
		if p.Protocol.IsHTTP() && v.CarriesHTTP(l, port) {
			c.http(c.shared(), envoy.FilterChainOptions{})
		} else {
			c.addBytes(row)
			c.orPass()
		}
		return c.listener(envoy.ListenerOptions{Host: ip.String(), Port: uint32(port), Free: true})
	}
	return nil, nil, nil
}
