package mesh

import (
	"iter"
	"net/netip"
	"slices"
	"strings"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/labels"
	"github.com/portolan-mesh/portolan/storage/pmap"
)

// InstanceRow is the endpoints of one service at one address.
type InstanceRow struct {
	Endpoints []*discovery.Endpoint
}

// InstancesAt are the endpoints at one address, by ServiceKey.
type InstancesAt = pmap.Map[*InstanceRow]

// workloadLabels are the labels of the workload at the proxy's addresses, nil
// where none are known.
func (p *PushContext) workloadLabels(proxy *discovery.Proxy) labels.Instance {
	return proxy.WorkloadLabels(func(ip string) iter.Seq2[string, []*discovery.Endpoint] {
		return func(yield func(string, []*discovery.Endpoint) bool) {
			for key, row := range p.Instances(ip).All() {
				if _, namespace := splitServiceKey(key); !yield(namespace, row.Endpoints) {
					return
				}
			}
		}
	})
}

// addressKey is the one spelling of an address.
func addressKey(address string) string {
	if !strings.Contains(address, ":") {
		return address
	}
	if ip, err := netip.ParseAddr(address); err == nil {
		return ip.Unmap().String()
	}
	return address
}

// nextInstances follows changed endpoints.
func nextInstances(instances pmap.Map[InstancesAt], from, to pmap.Map[*EndpointRow]) pmap.Map[InstancesAt] {
	for c := range pmap.Diff(from, to) {
		touched := touchedAddresses(c.Old.all(), c.New.all())
		old, curr := byAddress(c.Old.all(), touched), byAddress(c.New.all(), touched)
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

func (r *EndpointRow) all() []*discovery.Endpoint {
	if r == nil {
		return nil
	}
	return r.Endpoints
}

// touchedAddresses are those of the endpoints that differ: of what lies between the
// first and the last difference, as one change of many endpoints leaves the others
// in their places.
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
