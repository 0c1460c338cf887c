package mesh

import (
	"iter"
	"net/netip"
	"slices"
	"strings"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/discovery/rows"
	"github.com/portolan-mesh/portolan/storage/pmap"
)

// InstanceRow is the endpoints of one service at one address.
type InstanceRow struct {
	Endpoints []*discovery.Endpoint
}

// InstancesAt are the endpoints at one address, by rows.Key.
type InstancesAt = pmap.Map[*InstanceRow]

// workloadOf returns an endpoint of the workload at the proxy's addresses, nil
// where none are known.
func (p *PushContext) workloadOf(proxy *discovery.Proxy) *discovery.Endpoint {
	return proxy.Workload(func(ip string) iter.Seq2[string, []*discovery.Endpoint] {
		return func(yield func(string, []*discovery.Endpoint) bool) {
			for key, row := range p.Instances(ip).All() {
				if _, namespace := rows.SplitKey(key); !yield(namespace, row.Endpoints) {
					return
				}
			}
		}
	})
}

// placeOf is where the proxy is, with the labels that selectors see.
func (p *PushContext) placeOf(proxy *discovery.Proxy) discovery.Place {
	if e := p.workloadOf(proxy); e != nil {
		return proxy.Place(proxy.Labels(e.Labels), e.Locality.Label)
	}
	return proxy.Place(proxy.Labels(nil), "")
}

// addressKey returns the one spelling of an address.
func addressKey(address string) string {
	if !strings.Contains(address, ":") {
		return address
	}
	if ip, err := netip.ParseAddr(address); err == nil {
		return ip.Unmap().String()
	}
	return address
}

// instances has the endpoints by address.
type instances struct{ groups[*InstanceRow] }

var instanceRows = instances{groupsOf[*InstanceRow](Instances)}

func (t instances) follow(from, to *PushContext) {
	for c := range pmap.Diff(from.inputs.Endpoints, to.inputs.Endpoints) {
		touched := touchedAddresses(c.Old.All(), c.New.All())
		before, after := byAddress(c.Old.All(), touched), byAddress(c.New.All(), touched)
		for address := range before {
			if _, still := after[address]; !still {
				t.remove(to, address, c.Key)
			}
		}
		for address, endpoints := range after {
			if !slices.EqualFunc(before[address], endpoints, (*discovery.Endpoint).Equal) {
				t.add(to, address, c.Key, &InstanceRow{Endpoints: endpoints})
			}
		}
	}
}

// touchedAddresses returns the addresses of the endpoints that differ. It looks only
// between the first and the last difference, since a change leaves other endpoints in
// place.
func touchedAddresses(old, curr []*discovery.Endpoint) map[string]bool {
	for len(old) > 0 && len(curr) > 0 && old[0].Equal(curr[0]) {
		old, curr = old[1:], curr[1:]
	}
	for len(old) > 0 && len(curr) > 0 && old[len(old)-1].Equal(curr[len(curr)-1]) {
		old, curr = old[:len(old)-1], curr[:len(curr)-1]
	}
	out := map[string]bool{}
	for _, e := range slices.Concat(old, curr) {
		out[addressKey(e.Address)] = true
	}
	return out
}

// byAddress are endpoints by those addresses that are touched.
func byAddress(endpoints []*discovery.Endpoint, touched map[string]bool) map[string][]*discovery.Endpoint {
	out := map[string][]*discovery.Endpoint{}
	for _, e := range endpoints {
		if key := addressKey(e.Address); touched[key] {
			out[key] = append(out[key], e)
		}
	}
	return out
}
