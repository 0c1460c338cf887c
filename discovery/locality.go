package discovery

import (
	"cmp"
	"strings"

	"github.com/portolan-mesh/portolan/storage/labels"
)

// The labels that give the locality of a workload. A locality in one label has dots or slashes
// between its parts. (Istio: label.TopologyZone and others.)
const (
	localityLabel       = "istio-locality"
	regionLabel         = "topology.kubernetes.io/region"
	zoneLabel           = "topology.kubernetes.io/zone"
	subZoneLabel        = "topology.istio.io/subzone"
	networkLabel        = "topology.istio.io/network"
	topologyClusterName = "topology.istio.io/cluster"
)

// Place is what is known of the location of a workload.
type Place struct {
	Labels           labels.Instance
	Locality         string // region/zone/subzone
	Cluster, Network string
}

// LocalityOf returns region/zone/subzone, without the empty parts at the end.
func LocalityOf(region, zone, subZone string) string {
	return strings.TrimRight(region+"/"+zone+"/"+subZone, "/")
}

// LocalityOfLabels returns the locality that labels give, empty if none.
func LocalityOfLabels(of labels.Instance) string {
	if one := of[localityLabel]; one != "" {
		if strings.Contains(one, "/") {
			return one
		}
		return strings.ReplaceAll(one, ".", "/")
	}
	return LocalityOf(of[regionLabel], of[zoneLabel], of[subZoneLabel])
}

// Label returns the value of a label. Topology labels that are not set are derived from the
// place, as in Istio (labelutil.AugmentLabels).
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

// Region returns the region of the locality.
func (p Place) Region() string {
	region, _, _ := strings.Cut(p.Locality, "/")
	return region
}

// Place returns the location of the endpoint.
func (e *Endpoint) Place() Place {
	return Place{Labels: e.Labels, Locality: e.Locality.Label, Cluster: e.Locality.Cluster, Network: e.Network}
}

// Place returns the location of the proxy. The locality comes from the labels that selectors
// see, else from the node, else from the workload at its address.
func (p *Proxy) Place(of labels.Instance, workload string) Place {
	return Place{
		Labels: of, Locality: cmp.Or(LocalityOfLabels(of), p.Locality, workload), Cluster: p.ClusterID, Network: p.Network,
	}
}
