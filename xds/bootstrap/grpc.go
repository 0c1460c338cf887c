package bootstrap

import (
	"encoding/json"
	"fmt"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/xds/envoy"
	"github.com/portolan-mesh/portolan/xds/names"
)

// grpcBootstrap is the file that GRPC_XDS_BOOTSTRAP names (gRPC proposals A27 and
// A36).
type grpcBootstrap struct {
	Servers        []grpcServer    `json:"xds_servers"`
	Node           json.RawMessage `json:"node"`
	ServerListener string          `json:"server_listener_resource_name_template"`
}

type grpcServer struct {
	URI         string      `json:"server_uri"`
	Credentials []grpcCreds `json:"channel_creds"`
	Features    []string    `json:"server_features"`
}

type grpcCreds struct {
	Type string `json:"type"`
}

// GRPC renders, in JSON, the bootstrap of a gRPC client or server of options of type
// Proxyless, or names every fault of the options. It ignores options for Envoys:
// interception, DNS capture, the variant, the admin interface.
func GRPC(o Options) ([]byte, error) {
	o = o.withDefaults()
	o.AdminAddress = AdminOff
	if err := o.validate(discovery.Proxyless); err != nil {
		return nil, err
	}
	message := o.node()
	if message.Locality == nil { // without which the library in JavaScript reads no node
		message.Locality = &corev3.Locality{}
	}
	node, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(message)
	if err != nil {
		return nil, fmt.Errorf("render the node: %w", err)
	}
	var servers []grpcServer
	for _, address := range o.XDSAddresses {
		servers = append(servers, grpcServer{
			URI: grpcTarget(address), Credentials: []grpcCreds{{Type: "insecure"}}, Features: []string{"xds_v3"},
		})
	}
	out, err := json.MarshalIndent(grpcBootstrap{
		Servers:        servers,
		Node:           node,
		ServerListener: envoy.GRPCServerListenerPrefix + "%s",
	}, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("render the bootstrap: %w", err)
	}
	return append(out, '\n'), nil
}

// grpcTarget is an address in the words of gRPC.
func grpcTarget(address string) string {
	if !names.IsUnix(address) {
		return address
	}
	path := strings.TrimPrefix(address, "unix://")
	if abstract, ok := strings.CutPrefix(path, "@"); ok {
		return "unix-abstract:" + abstract
	}
	return "unix:" + path
}
