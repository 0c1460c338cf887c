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
		key := addressKey(e.Address)
		out[key] = append(out[key], e)
	}
	return out
}
