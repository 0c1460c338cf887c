package cluster

import (
	"iter"
	"net"
	"strconv"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/xds/envoy"
	"github.com/portolan-mesh/portolan/xds/generate"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// Inbound makes the clusters that lead to the application beside a sidecar. They
// are its workload's own.
type Inbound struct{}

var _ generate.Generator = Inbound{}

// TypeURL implements generate.Generator.
func (Inbound) TypeURL() string { return TypeURL }

// Affected implements generate.Generator.
func (Inbound) Affected(v *mesh.View, _ mesh.Delta) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, l := range v.Ingress() {
			if !yield(envoy.InboundClusterName(l.GetPort().GetNumber())) {
				return
			}
		}
	}
}

// Build implements generate.Generator.
func (Inbound) Build(v *mesh.View, name string) (*resource.Resource, error) {
	for _, l := range v.Ingress() {
		if name == envoy.InboundClusterName(l.GetPort().GetNumber()) {
			return inbound(v, name, l)
		}
	}
	return nil, nil
}

// inbound makes the cluster of an ingress port: the application beside the
// proxy.
func inbound(v *mesh.View, name string, l *networking.IstioIngressListener) (*resource.Resource, error) {
	address, port, ok := applicationAddress(v, l)
	if !ok {
		return nil, nil
	}
	options := envoy.ClusterOptions{
		Name: name, AltStatName: envoy.AltStatName(name), Type: envoy.Static, ConnectTimeout: connectTimeout(v),
		Endpoints: []envoy.Endpoints{{Endpoints: []envoy.Endpoint{{Host: address, Port: port}}}},
	}
	apply(nil, discovery.ParseProtocol(l.GetPort().GetProtocol()), &options)
	return resource.New(name, envoy.Cluster(options))
}

// applicationAddress is where an ingress listener sends what it takes: the
// loopback address and its own port unless it names another; the unspecified
// address stands for that of the instance.
func applicationAddress(v *mesh.View, l *networking.IstioIngressListener) (address string, port uint32, ok bool) {
	given := l.GetDefaultEndpoint()
	switch {
	case given == "":
		return "127.0.0.1", l.GetPort().GetNumber(), true
	case envoy.IsUnix(given):
		return given, 0, true
	}
	address, text, err := net.SplitHostPort(given)
	if err != nil {
		return "", 0, false
	}
	number, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return "", 0, false
	}
	if address == "0.0.0.0" || address == "::" {
		if address = v.InstanceIP(address == "::"); address == "" {
			return "", 0, false
		}
	}
	return address, uint32(number), true
}
