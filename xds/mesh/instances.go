package mesh

import (
	"slices"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/labels"
	"github.com/portolan-mesh/portolan/storage/pmap"
)

// InstanceRow is the endpoints of one service at one address.
type InstanceRow struct {
	Endpoints []*discovery.Endpoint
}

// Instances are the endpoints at one address, by ServiceKey.
type Instances = pmap.Map[*InstanceRow]

// workloadLabels are the labels of the workload at an address: those of its
// first service, nil where none is known.
func workloadLabels(at Instances) labels.Instance {
	for row := range at.Values() {
		return row.Endpoints[0].Labels
	}
	return nil
}

// nextInstances follows changed endpoints.
func nextInstances(instances pmap.Map[Instances], from, to pmap.Map[*EndpointRow]) pmap.Map[Instances] {
	for c := range pmap.Diff(from, to) {
		old, curr := byAddress(c.Old), byAddress(c.New)
		for address := range old {
			if _, still := curr[address]; !still {
				instances = withMember(instances, address, c.Key, nil, false)
			}
		}
		for address, after := range curr {
			if before := old[address]; !slices.EqualFunc(before, after, (*discovery.Endpoint).Equal) {
				instances = withMember(instances, address, c.Key, &InstanceRow{Endpoints: after}, true)
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
