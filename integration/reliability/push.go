package reliability

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/types/known/anypb"
)

// ReadPush returns what a response says about the objects of a run, from its resources and the
// names that it removes. whole means that it has all resources of its type.
func ReadPush(nonce string, resources map[string]*anypb.Any, removed []string, whole bool) (Push, error) {
	text, _, _ := strings.Cut(nonce, "-")
	revision, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return Push{}, fmt.Errorf("the nonce %q does not begin with a revision", nonce)
	}
	p := Push{Revision: revision, Values: map[Key]int64{}}
	for _, name := range slices.Sorted(maps.Keys(resources)) {
		message, err := resources[name].UnmarshalNew()
		if err != nil {
			return Push{}, fmt.Errorf("resource %s: %w", name, err)
		}
		switch m := message.(type) {
		case *clusterv3.Cluster:
			p.cluster(m)
			if whole {
				p.Whole, p.Scope = true, "ServiceEntry/"+singleNamespace
			}
		case *endpointv3.ClusterLoadAssignment:
			p.endpoints(m)
		case *routev3.RouteConfiguration:
			p.routes(m)
		}
	}
	for _, name := range removed {
		if key, ok := keyOfCluster(name); ok {
			p.Values[Key("ServiceEntry/"+key)] = 0
		}
	}
	return p, nil
}

// keyOfCluster returns namespace/name of a cluster's service.
func keyOfCluster(name string) (string, bool) {
	host, ok := strings.CutPrefix(name, "outbound|80||")
	if !ok {
		return "", false
	}
	return keyOfHost(host)
}

func keyOfHost(host string) (string, bool) {
	parts := strings.Split(host, ".")
	if len(parts) != 3 || parts[2] != "test" {
		return "", false
	}
	return parts[1] + "/" + parts[0], true
}

func (p *Push) cluster(m *clusterv3.Cluster) {
	key, ok := keyOfCluster(m.GetName())
	if !ok {
		return
	}
	service := Key("ServiceEntry/" + key)
	p.Present = append(p.Present, service)
	if !service.In("ServiceEntry/" + groupNamespace) {
		return
	}
	for _, t := range m.GetCircuitBreakers().GetThresholds() {
		if n := t.GetMaxConnections(); n != nil {
			p.Values[Key("DestinationRule/"+key)] = int64(n.GetValue())
			return
		}
	}
}

func (p *Push) endpoints(m *endpointv3.ClusterLoadAssignment) {
	key, ok := keyOfCluster(m.GetClusterName())
	if !ok {
		return
	}
	service := Key("ServiceEntry/" + key)
	p.Values[service] = 0
	for _, locality := range m.GetEndpoints() {
		for _, e := range locality.GetLbEndpoints() {
			p.Values[service] = valueOfAddress(e.GetEndpoint().GetAddress().GetSocketAddress().GetAddress())
		}
	}
}

func (p *Push) routes(m *routev3.RouteConfiguration) {
	for _, host := range m.GetVirtualHosts() {
		for _, domain := range host.GetDomains() {
			key, ok := keyOfHost(domain)
			if !ok {
				continue
			}
			for _, r := range host.GetRoutes() {
				p.Values[Key("VirtualService/"+key)] = r.GetRoute().GetTimeout().AsDuration().Milliseconds()
			}
		}
	}
}
