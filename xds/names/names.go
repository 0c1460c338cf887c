package names

import (
	"strconv"
	"strings"
	"unicode"
)

// Direction says whether traffic goes out of a workload or into it.
type Direction string

// The directions of cluster names.
const (
	Outbound Direction = "outbound"
	Inbound  Direction = "inbound"
)

// Names that are the same everywhere. EnvoyFilters, dashboards and access logs
// use them.
const (
	PassthroughCluster        = "PassthroughCluster"
	InboundPassthroughCluster = "InboundPassthroughCluster"
	BlackHoleCluster          = "BlackHoleCluster"
	// AllowAnyDynamicDNSCluster is the cluster of requests to unknown hosts that the
	// proxy resolves.
	AllowAnyDynamicDNSCluster = "AllowAnyDynamicDNSCluster"
	// LocalCluster is a cluster of the bootstrap. It has the endpoints of the proxy's own
	// service.
	LocalCluster = "local_cluster"

	VirtualOutboundListener = "virtualOutbound"
	VirtualInboundListener  = "virtualInbound"
	PassthroughFilterChain  = "PassthroughFilterChain"

	VirtualOutboundBlackHole = "virtualOutbound-blackhole"
	VirtualOutboundCatchAll  = "virtualOutbound-catchall-tcp"
	VirtualInboundBlackHole  = "virtualInbound-blackhole"
	VirtualInboundCatchAll   = "virtualInbound-catchall-http" // of HTTP; of other bytes it is that of the listener

	// HTTPProxyRouteConfig names the routes of the HTTP proxy of the whole mesh.
	HTTPProxyRouteConfig = "http_proxy"

	// DefaultRoute is the name of a route that has none of its own.
	DefaultRoute = "default"

	AllowAnyVirtualHost           = "allow_any"
	AllowAnyDynamicDNSVirtualHost = "allow_any_dynamic_dns"
	BlockAllVirtualHost           = "block_all"
)

// Names of secrets, as proxies request them. Istio has the same.
const (
	// WorkloadCertificate is the proxy's own certificate, and WorkloadRoots are the
	// authorities that it trusts.
	WorkloadCertificate = "default"
	WorkloadRoots       = "ROOTCA"

	// CredentialPrefix begins the names of stored secrets, and RootsSuffix ends those of
	// the authorities among them.
	CredentialPrefix = "kubernetes://"
	RootsSuffix      = "-cacert"

	// FileCertPrefix and FileRootPrefix begin the names of files on the proxy's machine.
	FileCertPrefix = "file-cert:"
	FileRootPrefix = "file-root:"
	fileSeparator  = "~"
	// SystemRoots are the authorities that the proxy's machine trusts.
	SystemRoots = FileRootPrefix + SystemFile
	// SystemFile stands for the path of their file.
	SystemFile = "system"
)

// Credential names the certificate and key of a stored secret.
func Credential(name string) string { return CredentialPrefix + name }

// CredentialRoots names the authorities of a stored secret.
func CredentialRoots(name string) string { return CredentialPrefix + name + RootsSuffix }

// FileCert names a certificate and its key, FileRoots certificates of authorities, by the
// paths of their files on the proxy's machine.
func FileCert(cert, key string) string { return FileCertPrefix + cert + fileSeparator + key }

// FileRoots is described with FileCert. revoked is the file of what the authorities have
// revoked, empty for none.
func FileRoots(path, revoked string) string {
	if revoked == "" {
		return FileRootPrefix + path
	}
	return FileRootPrefix + path + fileSeparator + revoked
}

// ParseFileRoots reads a name that FileRoots has made.
func ParseFileRoots(name string) (path, revoked string, ok bool) {
	files, ok := strings.CutPrefix(name, FileRootPrefix)
	path, revoked, _ = strings.Cut(files, fileSeparator)
	return path, revoked, ok && path != ""
}

// ParseFileCert reads a name that FileCert has made.
func ParseFileCert(name string) (cert, key string, ok bool) {
	files, ok := strings.CutPrefix(name, FileCertPrefix)
	if !ok {
		return "", "", false
	}
	cert, key, ok = strings.Cut(files, fileSeparator)
	return cert, key, ok && cert != "" && key != "" && !strings.Contains(key, fileSeparator)
}

const nameSeparator, sniSeparator = "|", "_."

// Cluster names the cluster of a port of host, of one subset or, where
// subset is empty, of all its endpoints: outbound|80|v1|web.example.com.
func Cluster(direction Direction, port uint32, subset, host string) string {
	return strings.Join([]string{string(direction), portText(port), subset, host}, nameSeparator)
}

// ServerName is the name that a client within the mesh asks for by TLS, unless it is told
// another: outbound_.80_.v1_.web.example.com.
func ServerName(port uint32, subset, host string) string {
	return strings.Join([]string{string(Outbound), portText(port), subset, host}, "_.")
}

// InboundCluster names the cluster of a workload's own port.
func InboundCluster(port uint32) string { return Cluster(Inbound, port, "", "") }

// ClusterRef is the content of a cluster's name.
type ClusterRef struct {
	Direction    Direction
	Port         uint32
	Subset, Host string
}

// ParseCluster reads a name that Cluster has made. It returns false for other names, such
// as clusters of the bootstrap.
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

// SNICluster names the cluster to which a gateway passes TLS whose client asks for that
// name: outbound_.80_.v1_.web.example.com. (Istio: the SNI-DNAT cluster.)
func SNICluster(port uint32, subset, host string) string {
	return strings.Join([]string{string(Outbound), portText(port), subset, host}, sniSeparator)
}

// ParseSNICluster reads a name that SNICluster has made.
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

// IsUnix says whether host is not a host but a Unix domain socket: a path, or
// an abstract name ("@..."), with or without the scheme "unix://".
func IsUnix(host string) bool {
	return strings.HasPrefix(host, "unix://") || strings.HasPrefix(host, "/") || strings.HasPrefix(host, "@")
}

// Listener names the listener of an address: 0.0.0.0_80. The name of a Unix domain
// socket has port 0.
func Listener(bind string, port uint32) string {
	if IsUnix(bind) {
		port = 0
	}
	return bind + "_" + portText(port)
}

// QUICListener names the listener for HTTP/3 of an address: udp_0.0.0.0_443.
func QUICListener(bind string, port uint32) string { return quicPrefix + Listener(bind, port) }

// BesideQUIC names the listener beside which a listener for HTTP/3 is; false for another name.
func BesideQUIC(name string) (string, bool) { return strings.CutPrefix(name, quicPrefix) }

const quicPrefix = "udp_"

// SidecarRouteConfig names the routes of the HTTP services that share a
// port.
func SidecarRouteConfig(port uint32) string { return portText(port) }

// ServiceRouteConfig names the routes of one service, where its port is not
// shared because the protocol is detected.
func ServiceRouteConfig(host string, port uint32) string { return HostPort(host, port) }

// GatewayHTTPRouteConfig names the routes of a gateway's plaintext servers
// on a port. bind is empty unless the servers name an address.
func GatewayHTTPRouteConfig(port uint32, bind string) string {
	return withBind("http."+portText(port), bind)
}

// GatewayHTTPSRouteConfig names the routes of a server that ends TLS, by its port and the
// name of that, and the Gateway. bind is empty unless the server names an address.
func GatewayHTTPSRouteConfig(port uint32, portName, gateway, namespace, bind string) string {
	return withBind(strings.Join([]string{"https", portText(port), portName, gateway, namespace}, "."), bind)
}

func withBind(name, bind string) string {
	if bind == "" {
		return name
	}
	return name + "." + bind
}

// HostPort is host:port, the name and a domain of a virtual host. Like Istio's
// it puts no brackets around an IPv6 address.
func HostPort(host string, port uint32) string { return host + ":" + portText(port) }

// InboundVirtualHost names the virtual host of a workload's own port.
func InboundVirtualHost(servicePort uint32) string {
	return "inbound|http|" + portText(servicePort)
}

// BlackHoleVirtualHost names the virtual host of a gateway's port that has
// no routes.
func BlackHoleVirtualHost(port uint32) string { return "blackhole:" + portText(port) }

// Route names a route by its http block and its match; either name may be empty.
func Route(route, match string) string {
	if match == "" {
		return route
	}
	return route + "." + match
}

// HTTPStatPrefix is the prefix of the statistics of an HTTP listener. The semicolon
// separates it from what follows.
func HTTPStatPrefix(direction Direction, listener string) string {
	return string(direction) + "_" + listener + ";"
}

// WeightedStatPrefix is the prefix of the statistics of a TCP proxy whose connections a
// VirtualService shares among several clusters.
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
