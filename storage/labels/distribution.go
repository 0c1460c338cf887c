package labels

import (
	"fmt"
	"strings"
)

// DistributionAnnotation is the annotation of a service that has its Distribution, as Istio names
// it.
const DistributionAnnotation = "networking.istio.io/traffic-distribution"

// Distribution says which endpoints of a service proxies prefer.
type Distribution string

// The distributions. A proxy fails over from the node to the subzone, the zone, the region, and at
// last the network.
const (
	AnyEndpoint    Distribution = ""
	PreferSameZone Distribution = "PreferSameZone"
	PreferSameNode Distribution = "PreferSameNode"
)

// ParseDistribution reads a distribution in any case; empty is AnyEndpoint. PreferClose is the
// older name of PreferSameZone in Kubernetes.
func ParseDistribution(text string) (Distribution, error) {
	switch {
	case text == "":
		return AnyEndpoint, nil
	case strings.EqualFold(text, "PreferClose"), strings.EqualFold(text, string(PreferSameZone)):
		return PreferSameZone, nil
	case strings.EqualFold(text, string(PreferSameNode)):
		return PreferSameNode, nil
	}
	return AnyEndpoint, fmt.Errorf("%q is no traffic distribution, and has no effect: use %s or %s", text, PreferSameZone, PreferSameNode)
}
