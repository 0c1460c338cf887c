package mesh

import (
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

// Instances are the endpoints at one address, by ServiceKey.
type Instances = pmap.Map[*InstanceRow]

// workloadLabels are the labels of the workload at the proxy's addresses: the
// first there are, those of services of the proxy's namespace before others; nil
// where none are known. A loopback address is every machine's and tells nothing
// of who asks, so it is passed over.
func (p *PushContext) workloadLabels(proxy *discovery.Proxy) labels.Instance {
	var other labels.Instance
	for _, ip := range proxy.IPAddresses {
		if isLoopback(ip) {
			continue
		}
		for key, row := range p.Instances(ip).All() {
			_, namespace := splitServiceKey(key)
			for _, e := range row.Endpoints {
				switch {
				case len(e.Labels) == 0:
				case namespace == proxy.Namespace:
					return e.Labels
				case other == nil:
					other = e.Labels
				}
			}
		}
	}
	return other
}

func isLoopback(address string) bool {
	ip, err := netip.ParseAddr(address)
	return err == nil && ip.IsLoopback()
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
		key := addressKey(e.Address)
		out[key] = append(out[key], e)
	}
	return out
}
