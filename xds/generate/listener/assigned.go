package listener

import (
	"net/netip"
	"slices"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"

	"github.com/portolan-mesh/portolan/storage/host"
	"github.com/portolan-mesh/portolan/xds/envoy"
	"github.com/portolan-mesh/portolan/xds/generate/route"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// assignedNames names the listeners at addresses that services were given, of
// which some may have come or gone.
func assignedNames(v *mesh.View, d mesh.Delta, yield func(string) bool) {
	if !v.Shape().DNSCapture {
		return
	}
	seen := map[string]bool{}
	for c := range d.Hosts() {
		for _, row := range []*mesh.HostRow{c.Old, c.New} {
			if !assignedNamesOf(v, row, seen, yield) {
				return
			}
		}
	}
}

func assignedNamesOf(v *mesh.View, row *mesh.HostRow, seen map[string]bool, yield func(string) bool) bool {
	if row == nil {
		return true
	}
	for _, s := range row.Services {
		for _, ip := range s.Assigned(v.Shape()) {
			for _, p := range s.Ports() {
				name := envoy.ListenerName(ip, uint32(p.Number))
				if !seen[name] && !yield(name) {
					return false
				}
				seen[name] = true
			}
		}
	}
	return true
}

// assigned makes the listener at an address that a service was given, nil where
// the proxy sees none that was. Whatever else has the port, what comes here is for
// that service.
func assigned(v *mesh.View, name string, l mesh.EgressListener, port int) (*resource.Resource, error) {
	ip, err := netip.ParseAddr(addressOf(name))
	if err != nil || !v.Shape().DNSCapture {
		return nil, nil
	}
	for h := range v.HostsAt(ip.String()) {
		row := v.ServiceAt(l, host.Name(h))
		if row == nil || !slices.Contains(row.Assigned(v.Shape()), ip.String()) {
			continue
		}
		p, ok := row.Port(port)
		if !ok || !p.Protocol.IsServed() {
			continue
		}
		options := envoy.ListenerOptions{
			Name: name, Host: ip.String(), Port: uint32(port), Free: true,
			Direction: corev3.TrafficDirection_OUTBOUND, AccessLogs: accessLogs(v, true),
		}
		if p.Protocol.IsHTTP() && route.Carries(v, l, port) {
			options.FilterChains = []*listenerv3.FilterChain{httpChain(v, name, port, nil)}
			return resource.New(name, envoy.Listener(options), envoy.SidecarRouteConfigName(uint32(port)))
		}
		options.FilterChains = []*listenerv3.FilterChain{tcpChain(v, row, port)}
		return resource.New(name, envoy.Listener(options))
	}
	return nil, nil
}
