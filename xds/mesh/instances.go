package mesh

import (
	"iter"
	"slices"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/discovery/rows"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/xds/mesh/service"
)

// InstanceRow holds the endpoints of one service at one address, also those out of use.
type InstanceRow struct {
	Endpoints []*discovery.Endpoint
}

// InstancesAt are the endpoints at one address, by rows.Key.
type InstancesAt = pmap.Map[*InstanceRow]

// workloadOf returns an endpoint of the workload at the proxy's addresses, nil if none is
// known.
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

// placeOf returns the proxy's locality, and its labels as selectors see them.
func (p *PushContext) placeOf(proxy *discovery.Proxy) discovery.Place {
	if e := p.workloadOf(proxy); e != nil {
		return proxy.Place(proxy.Labels(e.Labels), e.Place())
	}
	return proxy.Place(proxy.Labels(nil), discovery.Place{})
}

// instances maps an address to the endpoints there.
type instances struct{ groups[*InstanceRow] }

var instanceRows = instances{groupsOf[*InstanceRow](Instances)}

func (t instances) follow(from, to *PushContext) {
	for c := range pmap.Diff(from.inputs.Endpoints, to.inputs.Endpoints) {
		old, now := c.Old.Workloads(), c.New.Workloads()
		touched := service.TouchedAddresses(old, now)
		before, after := service.ByAddress(old, touched), service.ByAddress(now, touched)
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
