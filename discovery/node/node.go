// Package node has the values by which a proxy describes itself in its node id and node metadata.
// Who writes a bootstrap shares them with package discovery, which reads the node.
package node

// ProxyType is the role of a proxy.
type ProxyType string

// The proxy types.
const (
	Sidecar ProxyType = "sidecar"
	Router  ProxyType = "router"
	// Proxyless is a gRPC client or server that takes configuration itself, without a proxy
	// beside it.
	Proxyless ProxyType = "grpc"
	// ConfigClient is another control plane, which takes the objects of the mesh and no
	// configuration made of them.
	ConfigClient ProxyType = "api"
)

// InterceptionMode is how traffic is redirected to a sidecar.
type InterceptionMode string

// The interception modes of node metadata INTERCEPTION_MODE.
const (
	InterceptionNone     InterceptionMode = "NONE"
	InterceptionRedirect InterceptionMode = "REDIRECT"
	InterceptionTproxy   InterceptionMode = "TPROXY"
)

// CertificateFiles holds the paths of a certificate on a proxy's machine: its chain, its key,
// and the authorities that it trusts.
type CertificateFiles struct{ Chain, Key, Roots string }
