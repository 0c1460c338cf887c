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

// NodeLabel is the label by which failoverPriority names the node of a workload.
const NodeLabel = "kubernetes.io/hostname"

// Place is what is known of the location of a workload.
type Place struct {
	Labels           labels.Instance
	Locality         string // region/zone/subzone
	Cluster, Network string
	Node             string // of Kubernetes
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
	case NodeLabel:
		return p.Node
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
	return Place{Labels: e.Labels, Locality: e.Locality.Label, Cluster: e.Locality.Cluster, Network: e.Network, Node: e.Node}
}

// Place returns the location of the proxy. The locality comes from the labels that selectors
// see, else from what the proxy states, else from the workload at its address, which may be zero.
// The node of Kubernetes is the one that the proxy states, else that of the workload.
func (p *Proxy) Place(of labels.Instance, workload Place) Place {
	return Place{
		Labels: of, Locality: cmp.Or(LocalityOfLabels(of), p.Locality, workload.Locality), Cluster: p.ClusterID, Network: p.Network,
		Node: cmp.Or(p.NodeName, workload.Node),
	}
}
