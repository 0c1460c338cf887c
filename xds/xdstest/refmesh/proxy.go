package refmesh

import (
	"fmt"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/structpb"
)

// Proxies describes the sidecars of a mesh: each runs beside an endpoint.
type Proxies struct {
	Mesh Mesh
	// Spread takes the proxies from all namespaces. Otherwise they are from the first one, as
	// long as it has endpoints for them.
	Spread bool
	// Gateways makes them gateways, each at the address of an endpoint.
	Gateways bool
	// Interception is the node metadata INTERCEPTION_MODE.
	Interception string
}

// Node returns the node of a proxy, an Envoy 1.40. No proxy runs beside the last endpoint of a
// service.
func (p Proxies) Node(n int) *corev3.Node {
	i, e := p.place(n)
	ip, namespace := EndpointAddress(i, e), Namespace(i)
	name := fmt.Sprintf("%s-%d", Name(i), e)
	locality := strings.Split(p.Mesh.Locality(i, e), "/")
	fields := map[string]*structpb.Value{}
	for k, v := range p.Mesh.labels(i, e) {
		fields[k] = structpb.NewStringValue(v)
	}
	metadata := map[string]*structpb.Value{
		"NAMESPACE":         structpb.NewStringValue(namespace),
		"INSTANCE_IPS":      structpb.NewStringValue(ip),
		"INTERCEPTION_MODE": structpb.NewStringValue(p.Interception),
		"LABELS":            structpb.NewStructValue(&structpb.Struct{Fields: fields}),
	}
	if p.Mesh.Peers {
		metadata["TLS_CLIENT_CERT_CHAIN"] = structpb.NewStringValue("/etc/mesh/cert.pem")
		metadata["TLS_CLIENT_KEY"] = structpb.NewStringValue("/etc/mesh/key.pem")
		metadata["TLS_CLIENT_ROOT_CERT"] = structpb.NewStringValue("/etc/mesh/root.pem")
	}
	kind := "sidecar"
	if p.Gateways {
		kind = "router"
	}
	return &corev3.Node{
		Id:            kind + "~" + ip + "~" + name + "." + namespace + "~" + namespace + ".svc.cluster.local",
		Metadata:      &structpb.Struct{Fields: metadata},
		Locality:      &corev3.Locality{Region: locality[0], Zone: locality[1], SubZone: locality[2]},
		UserAgentName: "envoy",
		UserAgentVersionType: &corev3.Node_UserAgentBuildVersion{UserAgentBuildVersion: &corev3.BuildVersion{
			Version: &typev3.SemanticVersion{MajorNumber: 1, MinorNumber: 40},
		}},
	}
}

// place returns the service and the endpoint that a proxy runs beside.
func (p Proxies) place(n int) (service, endpoint int) {
	own := p.Mesh.Services
	if !p.Spread {
		own = max(p.Mesh.Services/Namespaces, 1)
	}
	service, endpoint = n%own, n/own%(Endpoints-1)
	if !p.Spread {
		service *= Namespaces
	}
	return service, endpoint
}
