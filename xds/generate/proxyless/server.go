package proxyless

import (
	"iter"
	"net"
	"net/netip"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/labels"
	"github.com/portolan-mesh/portolan/xds/envoy"
	"github.com/portolan-mesh/portolan/xds/envoy/socket"
	"github.com/portolan-mesh/portolan/xds/generate"
	"github.com/portolan-mesh/portolan/xds/generate/filter"
	"github.com/portolan-mesh/portolan/xds/generate/transport"
	"github.com/portolan-mesh/portolan/xds/generate/workload"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/mesh/peer"
	"github.com/portolan-mesh/portolan/xds/names"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// Servers makes the listeners of gRPC servers, each for the address that its server asks for.
// A server accepts calls even if the mesh does not know its workload: a withdrawn workload must
// serve until its last client knows.
type Servers struct{}

var _ generate.Generator = Servers{}

// TypeURL implements generate.Generator.
func (Servers) TypeURL() string { return resource.ListenerType }

// Affected implements generate.Generator.
func (Servers) Affected(v *mesh.View, _ mesh.Delta) iter.Seq[string] {
	return slices.Values(v.ServerListeners())
}

// Build implements generate.Generator.
func (Servers) Build(v *mesh.View, name string) (proto.Message, []resource.Need, error) {
	at := strings.TrimPrefix(name, names.GRPCServerListenerPrefix)
	address, err := netip.ParseAddrPort(at)
	if err != nil {
		return nil, nil, nil
	}
	host, _, err := net.SplitHostPort(at) // as the server writes it, which compares it
	if err != nil {
		return nil, nil, nil
	}
	options := envoy.GRPCServerOptions{Name: name, Host: host, Port: uint32(address.Port())}
	filters := filter.Options{}
	if Mode(v, int(address.Port())) == peer.Strict {
		if options.Refuses = !v.HasCertificate(); !options.Refuses {
			options.Transport, filters.Identities = socket.GRPCDownstreamTLS(), transport.MeshIdentities(v)
		}
	}
	options.Filters = filter.HTTP(v, filter.GRPCServer, filters)
	return envoy.GRPCServerListener(options), nil, nil
}

// Mode says how a gRPC server takes connections to a port, which it does in one way: Strict for
// mutual TLS of the mesh alone, Disable for plaintext alone. Where a PeerAuthentication permits
// both, clients go by what the workload says of itself, and so does the server.
func Mode(v *mesh.View, port int) peer.Mode {
	mode := workload.Mode(v, port)
	if mode != peer.Permissive {
		return mode
	}
	if _, own := v.OwnPeers(); own[labels.TLSMode] == discovery.TLSModeIstio {
		return peer.Strict
	}
	for _, s := range v.InboundServices() {
		for _, e := range s.Endpoints {
			if e.Port == port && e.TLSMode == discovery.TLSModeIstio {
				return peer.Strict
			}
		}
	}
	return peer.Disable
}
