package names

import (
	"strconv"
	"strings"
	"unicode"
)

// Direction says whether traffic leaves a workload or enters it.
type Direction string

// The directions of cluster names.
const (
	Outbound Direction = "outbound"
	Inbound  Direction = "inbound"
)

// Constant names. EnvoyFilters, dashboards and access logs use them.
const (
	PassthroughCluster        = "PassthroughCluster"
	InboundPassthroughCluster = "InboundPassthroughCluster"
	BlackHoleCluster          = "BlackHoleCluster"
	// AllowAnyDynamicDNSCluster is the cluster for requests to unknown hosts that the
	// proxy resolves.
	AllowAnyDynamicDNSCluster = "AllowAnyDynamicDNSCluster"
	// LocalCluster is a cluster in the bootstrap with the endpoints of the proxy's own
	// service.
	LocalCluster = "local_cluster"

	VirtualOutboundListener = "virtualOutbound"
	VirtualInboundListener  = "virtualInbound"
	PassthroughFilterChain  = "PassthroughFilterChain"

	VirtualOutboundBlackHole = "virtualOutbound-blackhole"
	VirtualOutboundCatchAll  = "virtualOutbound-catchall-tcp"
	VirtualInboundBlackHole  = "virtualInbound-blackhole"
	VirtualInboundCatchAll   = "virtualInbound-catchall-http" // of HTTP; of other bytes it is that of the listener

	// HTTPProxyRouteConfig names the routes of the mesh's HTTP proxy.
	HTTPProxyRouteConfig = "http_proxy"

	// MutualTLSMatch names the transport socket of a cluster for endpoints that take mutual TLS.
	MutualTLSMatch = "tlsMode-istio"

	// DefaultRoute is the name of a route without a name.
	DefaultRoute = "default"

	AllowAnyVirtualHost           = "allow_any"
	AllowAnyDynamicDNSVirtualHost = "allow_any_dynamic_dns"
	BlockAllVirtualHost           = "block_all"
)

// Names of secrets, as proxies request them. They are Istio's.
const (
	// WorkloadCertificate is the proxy's own certificate. WorkloadRoots are the CA
	// certificates that it trusts in the mesh.
	WorkloadCertificate = "default"
	WorkloadRoots       = "ROOTCA"
	// CertificateProvider is the certificate provider of a gRPC program's bootstrap, with its own
	// certificate and the roots of the mesh. (Istio's has the same.)
	CertificateProvider = "default"

	// CredentialPrefix begins the names of stored secrets. RootsSuffix ends the names of
	// those with CA certificates.
	CredentialPrefix = "kubernetes://"
	RootsSuffix      = "-cacert"

	// FileCertPrefix and FileRootPrefix begin the names of secrets in files on the
	// proxy's machine.
	FileCertPrefix = "file-cert:"
	FileRootPrefix = "file-root:"
	fileSeparator  = "~"
	// SystemFile stands for the path of the machine's CA file.
	SystemFile = "system"
)

// Credential names the certificate and key of a stored secret.
func Credential(name string) string { return CredentialPrefix + name }

// CredentialRoots names the CA certificates of a stored secret.
func CredentialRoots(name string) string { return CredentialPrefix + name + RootsSuffix }

// FileCert names a certificate and its key by the paths of their files on the proxy's
// machine.
func FileCert(cert, key string) string { return FileCertPrefix + cert + fileSeparator + key }

// FileRoots names CA certificates by the path of their file on the proxy's machine.
// revoked is the file of the revocation list, empty for none.
func FileRoots(path, revoked string) string {
	if revoked == "" {
		return FileRootPrefix + path
	}
	return FileRootPrefix + path + fileSeparator + revoked
}

// ParseFileRoots is the inverse of FileRoots; false for other names.
func ParseFileRoots(name string) (path, revoked string, ok bool) {
	files, ok := strings.CutPrefix(name, FileRootPrefix)
	path, revoked, _ = strings.Cut(files, fileSeparator)
	return path, revoked, ok && path != ""
}

// ParseFileCert is the inverse of FileCert; false for other names.
func ParseFileCert(name string) (cert, key string, ok bool) {
	files, ok := strings.CutPrefix(name, FileCertPrefix)
	if !ok {
		return "", "", false
	}
	cert, key, ok = strings.Cut(files, fileSeparator)
	return cert, key, ok && cert != "" && key != "" && !strings.Contains(key, fileSeparator)
}

const nameSeparator, sniSeparator = "|", "_."

// Cluster names the cluster of a host's port, for one subset or, if subset is empty, for
// all endpoints: outbound|80|v1|web.example.com.
func Cluster(direction Direction, port uint32, subset, host string) string {
	return strings.Join([]string{string(direction), portText(port), subset, host}, nameSeparator)
}

// ServerName is the SNI that clients within the mesh send by default:
// outbound_.80_.v1_.web.example.com.
func ServerName(port uint32, subset, host string) string {
	return strings.Join([]string{string(Outbound), portText(port), subset, host}, "_.")
}

// InboundCluster names the cluster of a workload's own port.
func InboundCluster(port uint32) string { return Cluster(Inbound, port, "", "") }

// ClusterRef holds the parts of a cluster's name.
type ClusterRef struct {
	Direction    Direction
	Port         uint32
	Subset, Host string
}

// ParseCluster is the inverse of Cluster; false for other names, such as clusters in the
// bootstrap.
func ParseCluster(name string) (ref ClusterRef, ok bool) {
	parts := strings.SplitN(name, nameSeparator, 4)
	if len(parts) != 4 || strings.Contains(parts[3], nameSeparator) {
		return ClusterRef{}, false
	}
	direction := Direction(parts[0])
	if direction != Outbound && direction != Inbound {
		return ClusterRef{}, false
	}
	port, err := strconv.ParseUint(parts[1], 10, 16)
	if err != nil {
		return ClusterRef{}, false
	}
	return ClusterRef{Direction: direction, Port: uint32(port), Subset: parts[2], Host: parts[3]}, true
}

// SNICluster names the cluster to which a gateway passes TLS with this SNI:
// outbound_.80_.v1_.web.example.com. (Istio: the SNI-DNAT cluster.)
func SNICluster(port uint32, subset, host string) string {
	return strings.Join([]string{string(Outbound), portText(port), subset, host}, sniSeparator)
}

// ParseSNICluster is the inverse of SNICluster; false for other names.
func ParseSNICluster(name string) (ref ClusterRef, ok bool) {
	parts := strings.SplitN(name, sniSeparator, 4)
	if len(parts) != 4 || parts[0] != string(Outbound) || strings.Contains(parts[3], sniSeparator) {
		return ClusterRef{}, false
	}
	port, err := strconv.ParseUint(parts[1], 10, 16)
	if err != nil || SNICluster(uint32(port), parts[2], parts[3]) != name {
		return ClusterRef{}, false
	}
	return ClusterRef{Direction: Outbound, Port: uint32(port), Subset: parts[2], Host: parts[3]}, true
}

// IsUnix says whether host is a Unix domain socket: a path or an abstract name ("@..."),
// with or without the scheme "unix://".
func IsUnix(host string) bool {
	return strings.HasPrefix(host, "unix://") || strings.HasPrefix(host, "/") || strings.HasPrefix(host, "@")
}

// Listener names the listener at an address: 0.0.0.0_80. For a Unix domain socket the
// port is 0.
func Listener(bind string, port uint32) string {
	if IsUnix(bind) {
		port = 0
	}
	return bind + "_" + portText(port)
}

// QUICListener names the HTTP/3 listener at an address: udp_0.0.0.0_443.
func QUICListener(bind string, port uint32) string { return quicPrefix + Listener(bind, port) }

// BesideQUIC is the inverse of QUICListener: it returns the name of the TCP listener at
// the same address; false for other names.
func BesideQUIC(name string) (string, bool) { return strings.CutPrefix(name, quicPrefix) }

const quicPrefix = "udp_"

// SidecarRouteConfig names the routes of the HTTP services that share a port.
func SidecarRouteConfig(port uint32) string { return portText(port) }

// ServiceRouteConfig names the routes of one service that does not share its port, since
// its protocol is detected.
func ServiceRouteConfig(host string, port uint32) string { return HostPort(host, port) }

// GatewayHTTPRouteConfig names the routes of a gateway's plaintext servers
// on a port. bind is empty unless the servers name an address.
func GatewayHTTPRouteConfig(port uint32, bind string) string {
	return withBind("http."+portText(port), bind)
}

// GatewayHTTPSRouteConfig names the routes of a server that terminates TLS, by its port,
// the port's name and its Gateway. bind is empty unless the server names an address.
func GatewayHTTPSRouteConfig(port uint32, portName, gateway, namespace, bind string) string {
	return withBind(strings.Join([]string{"https", portText(port), portName, gateway, namespace}, "."), bind)
}

func withBind(name, bind string) string {
	if bind == "" {
		return name
	}
	return name + "." + bind
}

// HostPort is host:port, the name and a domain of a virtual host. Like Istio, it does not
// bracket IPv6 addresses.
func HostPort(host string, port uint32) string { return host + ":" + portText(port) }

// InboundVirtualHost names the virtual host of a workload's own port.
func InboundVirtualHost(servicePort uint32) string {
	return "inbound|http|" + portText(servicePort)
}

// BlackHoleVirtualHost names the virtual host of a gateway's port without routes.
func BlackHoleVirtualHost(port uint32) string { return "blackhole:" + portText(port) }

// MisdirectedVirtualHost names the virtual host of a gateway's TLS server for requests that
// belong to other servers of the port.
func MisdirectedVirtualHost(port uint32) string { return "misdirected:" + portText(port) }

// Route names a route by the names of its http block and its match; either may be empty.
func Route(route, match string) string {
	if match == "" {
		return route
	}
	return route + "." + match
}

// HTTPStatPrefix is the prefix of an HTTP listener's statistics. The semicolon ends it.
func HTTPStatPrefix(direction Direction, listener string) string {
	return string(direction) + "_" + listener + ";"
}

// WeightedStatPrefix is the prefix of a TCP proxy's statistics if a VirtualService
// distributes the connections over several clusters.
func WeightedStatPrefix(name, namespace string) string { return name + "." + namespace }

// AltStat is the name of a cluster in statistics.
func AltStat(cluster string) string { return cluster + ";" }

// ConfigPath is the path of a configuration object in metadata:
// /apis/networking.istio.io/v1/namespaces/default/virtual-service/web.
func ConfigPath(group, version, kind, namespace, name string) string {
	return "/apis/" + group + "/" + version + "/namespaces/" + namespace + "/" + kebab(kind) + "/" + name
}

// kebab turns VirtualService into virtual-service.
func kebab(kind string) string {
	var b strings.Builder
	for i, r := range kind {
		if unicode.IsUpper(r) && i > 0 {
			b.WriteByte('-')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

func portText(port uint32) string { return strconv.FormatUint(uint64(port), 10) }

// GRPCServerListenerPrefix is the prefix of the listener names that gRPC servers request;
// the server's address follows it.
const GRPCServerListenerPrefix = "xds.istio.io/grpc/lds/inbound/"
