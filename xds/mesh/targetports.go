package mesh

import (
	"cmp"
	"slices"
	"strings"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/discovery/rows"
	"github.com/portolan-mesh/portolan/xds/mesh/class"
	"github.com/portolan-mesh/portolan/xds/mesh/routing"
)

// TargetPorts are the ports on which a proxy listens for those of the services of its own
// namespace that it serves: those of their endpoints at its addresses. Of two services with
// one port the older decides. They depend on the rows InstancesKey, and on the services of
// the endpoints there, ServiceKeysAt. (Istio: resolvePorts.)
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
				i := slices.IndexFunc(s.Ports(), func(p discovery.Port) bool { return p.Name == e.ServicePortName })
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

// ServiceKeysAt names the rows of the services that have endpoints at the addresses of a
// proxy.
func (p *PushContext) ServiceKeysAt(proxy *discovery.Proxy) (out []RowKey) {
	for _, address := range proxy.IPAddresses {
		for key := range p.Instances(address).Keys() {
			out = append(out, RowKey{Services, key})
		}
	}
	return out
}

// gatewayPorts are the TargetPorts of a router, as far as its Gateways have servers there and
// they are others than those.
func (p *PushContext) gatewayPorts(proxy *discovery.Proxy, paths string) string {
	if paths == "" {
		return ""
	}
	all := p.TargetPorts(proxy)
	if len(all) == 0 {
		return ""
	}
	out := routing.TargetPorts{}
	for path := range strings.SplitSeq(paths, class.Separator) {
		for _, s := range gatewayRows.of(p).Value(path).Servers {
			if target := all.Of(s.Port()); target != s.Port() {
				out[s.Port()] = target
			}
		}
	}
	return out.String()
}

// servesAnew says whether a service at the addresses of a proxy is another than in an earlier
// context, where the endpoints at these are the same.
func (p *PushContext) servesAnew(from *PushContext, proxy *discovery.Proxy) bool {
	for _, address := range proxy.IPAddresses {
		for key := range p.Instances(address).Keys() {
			if p.inputs.Services.Value(key) != from.inputs.Services.Value(key) {
				return true
			}
		}
	}
	return false
}
