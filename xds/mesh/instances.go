package mesh

import (
	"slices"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/labels"
	"github.com/portolan-mesh/portolan/storage/pmap"
)

// InstanceRow is the endpoints at one address, over all services, in the order
// of their services.
type InstanceRow struct {
	Endpoints []Instance
}

// Instance is an endpoint and the row it stands in.
type Instance struct {
	Service  string // its ServiceKey
	Endpoint *discovery.Endpoint
}

// Labels are those of the workload at the address, nil where none is known.
func (r *InstanceRow) Labels() labels.Instance {
	if r == nil {
		return nil
	}
	return r.Endpoints[0].Endpoint.Labels
}

// nextInstances follows changed endpoints.
func nextInstances(instances pmap.Map[*InstanceRow], from, to pmap.Map[*EndpointRow]) pmap.Map[*InstanceRow] {
	for c := range pmap.Diff(from, to) {
		old, curr := byAddress(c.Old), byAddress(c.New)
		for address, before := range old {
			if after := curr[address]; !slices.EqualFunc(before, after, (*discovery.Endpoint).Equal) {
				instances = withInstances(instances, address, c.Key, after)
			}
		}
		for address, after := range curr {
			if _, had := old[address]; !had {
				instances = withInstances(instances, address, c.Key, after)
			}
		}
	}
	return instances
}

func byAddress(r *EndpointRow) map[string][]*discovery.Endpoint {
	if r == nil {
		return nil
	}
	out := map[string][]*discovery.Endpoint{}
	for _, e := range r.Endpoints {
		out[e.Address] = append(out[e.Address], e)
	}
	return out
}

// withInstances replaces what one service has at an address.
func withInstances(instances pmap.Map[*InstanceRow], address, service string, endpoints []*discovery.Endpoint) pmap.Map[*InstanceRow] {
	var list []Instance
	if row := instances.Value(address); row != nil {
		list = slices.DeleteFunc(slices.Clone(row.Endpoints), func(i Instance) bool { return i.Service == service })
	}
	at, _ := slices.BinarySearchFunc(list, service, func(i Instance, s string) int {
		if i.Service < s {
			return -1
		}
		return 1
	})
	for _, e := range endpoints {
		list = slices.Insert(list, at, Instance{Service: service, Endpoint: e})
		at++
	}
	if len(list) == 0 {
		return instances.Delete(address)
	}
	return instances.Set(address, &InstanceRow{Endpoints: list})
}
