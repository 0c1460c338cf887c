package mesh

import (
	"cmp"
	"slices"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/discovery/rows"
	"github.com/portolan-mesh/portolan/xds/mesh/class"
	"github.com/portolan-mesh/portolan/xds/mesh/routing"
)

// TargetPorts maps service ports to the ports on which a proxy listens for them. It
// covers the services of the proxy's own namespace with endpoints at its addresses, and
// takes the ports of these endpoints. If two services have a port in common, the older
// wins. The answer depends on the rows InstancesKey and ServiceKeysAt. (Istio:
// resolvePorts.)
func (p *PushContext) TargetPorts(proxy *discovery.Proxy) routing.TargetPorts {
	type served struct {
		service      *discovery.Service
		port, target int
	}
	var all []served
	for _, address := range proxy.IPAddresses {
		for key, row := range p.Instances(address).All() {
			if _, namespace := rows.SplitKey(key); namespace != proxy.Namespace {
				continue
			}
			s := p.inputs.Services.Value(key)
			if s == nil {
				continue
			}
			for _, e := range row.Endpoints {
				i := slices.IndexFunc(s.Ports(), e.IsFor)
				if i >= 0 && e.Port > 0 && s.Ports()[i].Protocol.IsServed() && proxy.Serves(e) {
					all = append(all, served{s.Service(), s.Ports()[i].Number, e.Port})
				}
			}
		}
	}
	if len(all) == 0 {
		return nil
	}
	slices.SortStableFunc(all, func(a, b served) int {
		return cmp.Or(discovery.CompareServices(a.service, b.service), cmp.Compare(a.port, b.port), cmp.Compare(a.target, b.target))
	})
	out := routing.TargetPorts{}
	for _, s := range all {
		if _, known := out[s.port]; !known {
			out[s.port] = s.target
		}
	}
	return out
}

// ServiceKeysAt returns the keys of the services that have endpoints at a proxy's
// addresses.
func (p *PushContext) ServiceKeysAt(proxy *discovery.Proxy) (out []RowKey) {
	for _, address := range proxy.IPAddresses {
		for key := range p.Instances(address).Keys() {
			out = append(out, RowKey{Services, key})
		}
	}
	return out
}

// gatewayPorts returns, as text, those TargetPorts of a router that differ from the
// service port and for which its Gateways have servers.
func (p *PushContext) gatewayPorts(proxy *discovery.Proxy, attached class.Attached) string {
	all := p.TargetPorts(proxy)
	if len(all) == 0 {
		return ""
	}
	out := routing.TargetPorts{}
	for path := range attached.Names(class.Gateway) {
		for _, s := range gatewayRows.rowsOf(p).Value(path).Servers {
			if target := all.Of(s.Port()); target != s.Port() {
				out[s.Port()] = target
			}
		}
	}
	return out.String()
}

// servicesChangedAt says whether a service at the proxy's addresses changed since an earlier
// context. The endpoints there must be unchanged.
func (p *PushContext) servicesChangedAt(from *PushContext, proxy *discovery.Proxy) bool {
	for _, address := range proxy.IPAddresses {
		for key := range p.Instances(address).Keys() {
			if p.inputs.Services.Value(key) != from.inputs.Services.Value(key) {
				return true
			}
		}
	}
	return false
}
