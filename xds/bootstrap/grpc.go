package bootstrap

import (
	"encoding/json"
	"fmt"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/portolan-mesh/portolan/discovery/node"
	"github.com/portolan-mesh/portolan/xds/names"
)

// grpcBootstrap is the content of the file in GRPC_XDS_BOOTSTRAP (gRPC proposals A27 and
// A36).
type grpcBootstrap struct {
	Servers        []grpcServer    `json:"xds_servers"`
	Node           json.RawMessage `json:"node"`
	ServerListener string          `json:"server_listener_resource_name_template"`
	// Providers are the certificate files that the library reads, again when they are
	// replaced.
	Providers map[string]grpcProvider `json:"certificate_providers,omitempty"`
}

type grpcProvider struct {
	Plugin string    `json:"plugin_name"`
	Config grpcFiles `json:"config"`
}

// grpcFiles are PEM files, also for credentials of type tls (gRPC proposal A65).
type grpcFiles struct {
	Certificate string `json:"certificate_file"`
	Key         string `json:"private_key_file"`
	Roots       string `json:"ca_certificate_file"`
	Refresh     string `json:"refresh_interval"`
}

// grpcRefresh is how often the library rereads the files.
const grpcRefresh = "10s"

type grpcServer struct {
	URI         string      `json:"server_uri"`
	Credentials []grpcCreds `json:"channel_creds"`
	Features    []string    `json:"server_features"`
}

type grpcCreds struct {
	Type   string     `json:"type"`
	Config *grpcFiles `json:"config,omitempty"`
}

// GRPC renders the bootstrap of a gRPC client or server as JSON. The options must have
// the type Proxyless; the error names all their faults. It ignores options for Envoys:
// interception, DNS capture, the variant, the admin interface.
func GRPC(o Options) ([]byte, error) {
	o = o.withDefaults()
	o.AdminAddress = AdminOff
	if err := o.validate(node.Proxyless); err != nil {
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
	credentials := grpcCreds{Type: "insecure"}
	var providers map[string]grpcProvider
	if o.TLS {
		files := grpcFiles{o.Certificate.Chain, o.Certificate.Key, o.serverRoots(), grpcRefresh}
		credentials = grpcCreds{"tls", &files}
	}
	if o.Certificate.Chain != "" {
		own := grpcFiles{o.Certificate.Chain, o.Certificate.Key, o.Certificate.Roots, grpcRefresh}
		providers = map[string]grpcProvider{names.CertificateProvider: {"file_watcher", own}}
	}
	var servers []grpcServer
	for _, address := range o.XDSAddresses {
		servers = append(servers, grpcServer{
			URI: grpcTarget(address), Credentials: []grpcCreds{credentials}, Features: []string{"xds_v3"},
		})
	}
	out, err := json.MarshalIndent(grpcBootstrap{
		Servers:        servers,
		Node:           node,
		ServerListener: names.GRPCServerListenerPrefix + "%s",
		Providers:      providers,
	}, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("render the bootstrap: %w", err)
	}
	return append(out, '\n'), nil
}

// grpcTarget is an address in gRPC's syntax.
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
