package patch

import (
	"fmt"
	"slices"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"
)

// Cluster applies the patches of CLUSTER. It returns nil if one removes the cluster.
func Cluster(m *clusterv3.Cluster, at Place, patches []*Patch) (*clusterv3.Cluster, []Result) {
	facts := factsOfCluster(m.GetName(), at)
	changes := func(p *Patch) bool {
		return p.is(networking.EnvoyFilter_CLUSTER, at.Context) && (p.merges() || p.Operation == networking.EnvoyFilter_Patch_REMOVE) && p.matchesCluster(facts)
	}
	if !slices.ContainsFunc(patches, changes) {
		return m, nil
	}
	return apply(m, patches, func(r *run, m *clusterv3.Cluster, patches []*Patch) *clusterv3.Cluster {
		for _, p := range patches {
			switch {
			case !changes(p):
			case p.merges():
				r.step(p, func() error { return mergeCluster(m, p) })
			default:
				r.done(p)
				return nil
			}
		}
		return m
	})
}

// mergeCluster merges a patch into a cluster. A transport socket merges into the one of its name,
// the first in transport_socket_matches if there are any, and otherwise replaces that of the cluster.
func mergeCluster(m *clusterv3.Cluster, p *Patch) error {
	value := p.value.(*clusterv3.Cluster)
	socket := value.GetTransportSocket()
	if socket == nil {
		p.merging().message(m.ProtoReflect(), value.ProtoReflect())
		return nil
	}
	target := m.GetTransportSocket()
	if len(m.GetTransportSocketMatches()) > 0 {
		i := slices.IndexFunc(m.GetTransportSocketMatches(), func(one *clusterv3.Cluster_TransportSocketMatch) bool {
			return one.GetTransportSocket().GetName() == socket.GetName()
		})
		if i < 0 {
			return fmt.Errorf("the cluster has no transport socket %q: it chooses one by endpoint (transport_socket_matches), so the patch must name one of those", socket.GetName())
		}
		target = m.GetTransportSocketMatches()[i].GetTransportSocket()
	}
	if target.GetName() != socket.GetName() || target == nil {
		target, m.TransportSocket = nil, nil
	}
	rest := proto.CloneOf(value)
	if target != nil {
		rest.TransportSocket = nil
		if err := mergeSocket(target, socket, p); err != nil {
			return err
		}
	}
	p.merging().message(m.ProtoReflect(), rest.ProtoReflect())
	return nil
}

// mergeSocket merges a transport socket into one of its name.
func mergeSocket(dst, src *corev3.TransportSocket, p *Patch) error {
	if err := p.merging().configured(dst.ProtoReflect(), src.ProtoReflect()); err != nil {
		return fmt.Errorf("transport_socket %s: %w", src.GetName(), err)
	}
	return nil
}
