package discovery

import (
	"cmp"
	"strings"

	"github.com/portolan-mesh/portolan/storage/labels"
)

// The labels that tell where a workload is. A locality in one label has dots or slashes
// between its parts. (Istio: label.TopologyZone and others.)
const (
	localityLabel       = "istio-locality"
	regionLabel         = "topology.kubernetes.io/region"
	zoneLabel           = "topology.kubernetes.io/zone"
	subZoneLabel        = "topology.istio.io/subzone"
	networkLabel        = "topology.istio.io/network"
	topologyClusterName = "topology.istio.io/cluster"
)

// Place is what is known of where a workload is.
type Place struct {
	Labels           labels.Instance
	Locality         string // region/zone/subzone
	Cluster, Network string
}

// LocalityOf writes a locality as region/zone/subzone; what is empty on the right is left
// out.
func LocalityOf(region, zone, subZone string) string {
	return strings.TrimRight(region+"/"+zone+"/"+subZone, "/")
}

// LocalityOfLabels returns the locality that labels tell, empty for none.
func LocalityOfLabels(of labels.Instance) string {
	if one := of[localityLabel]; one != "" {
		if strings.Contains(one, "/") {
			return one
		}
		return strings.ReplaceAll(one, ".", "/")
	}
	return LocalityOf(of[regionLabel], of[zoneLabel], of[subZoneLabel])
}

// Label returns the value of a label. Labels of the topology that are not set follow from
// the place, as Istio adds them (labelutil.AugmentLabels).
func (p Place) Label(key string) string {
	if value, set := p.Labels[key]; set {
		return value
	}
	_, rest, _ := strings.Cut(p.Locality, "/")
	zone, subZone, _ := strings.Cut(rest, "/")
	switch key {
	case regionLabel:
		return p.Region()
	case zoneLabel:
		return zone
	case subZoneLabel:
		return subZone
	case networkLabel:
		return p.Network
	case topologyClusterName:
		return p.Cluster
	}
	return ""
}

// Region is the region of the locality.
func (p Place) Region() string {
	region, _, _ := strings.Cut(p.Locality, "/")
	return region
}

// Place is where the endpoint is.
func (e *Endpoint) Place() Place {
	return Place{Labels: e.Labels, Locality: e.Locality.Label, Cluster: e.Locality.Cluster, Network: e.Network}
}

// Place is where the proxy is, by the labels that selectors see; else by what its node
// says; else by the locality of the workload at its address.
func (p *Proxy) Place(of labels.Instance, workload string) Place {
	return Place{
		Labels: of, Locality: cmp.Or(LocalityOfLabels(of), p.Locality, workload), Cluster: p.ClusterID, Network: p.Network,
	}
}
