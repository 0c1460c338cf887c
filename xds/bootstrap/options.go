package bootstrap

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/go-multierror"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"

	"github.com/portolan-mesh/portolan/discovery/node"
	"github.com/portolan-mesh/portolan/storage/labels"
	"github.com/portolan-mesh/portolan/xds/names"
)

// The defaults of Options.
const (
	DefaultDomain         = "cluster.local"
	DefaultXDSAddress     = "127.0.0.1:15010"
	DefaultAdminAddress   = "127.0.0.1:15000"
	DefaultConnectTimeout = time.Second
	DefaultIstioVersion   = "1.31.0"
)

// AdminOff, as an admin address, means no admin interface.
const AdminOff = "off"

// Options describe a proxy and its connection to the control plane. Type, IPs, Name and
// Namespace have no defaults.
type Options struct {
	Type node.ProxyType
	// IPs are the addresses by which the mesh knows the workload. The first is part of
	// the node id.
	IPs []string
	// Name is the workload's name, unique in its Namespace, which is also the namespace
	// of its configuration.
	Name, Namespace string
	// Domain is the mesh's DNS suffix, DefaultDomain if empty.
	Domain string
	// Cluster is the proxy's service in statistics and traces, <name>.<namespace> if
	// empty. ClusterID is the cluster of machines that the proxy belongs to, and Network
	// its network.
	Cluster, ClusterID, Network string
	Labels                      labels.Instance
	ServiceAccount              string
	// WorkloadGroup is the group of the Namespace in which the control plane registers the proxy
	// while it is connected; empty for none.
	WorkloadGroup string
	// InterceptionMode is a sidecar's traffic capture. Empty means NONE, since a machine
	// captures traffic only if it is set up to. A router has none.
	InterceptionMode node.InterceptionMode
	// DNSCapture says that applications next to a sidecar find services by assigned
	// addresses: the sidecar listens on each of them.
	DNSCapture bool
	// SelfDiscovery gives the proxy a cluster with the endpoints of its own service, so
	// that it can balance load between zones. It requires the Locality.
	SelfDiscovery bool
	// HTTPProxyPort is the port on which a sidecar is an HTTP proxy for its applications;
	// 0 leaves it to the mesh configuration.
	HTTPProxyPort uint16
	// IstioVersion is the version that EnvoyFilters match, DefaultIstioVersion if empty.
	IstioVersion string
	// Locality is region/zone/subzone; parts from the right may be missing.
	Locality string
	// XDSAddresses are the xDS addresses of the control plane's servers: host:port, or a
	// Unix domain socket. Empty means DefaultXDSAddress. A proxy uses one of them, and
	// another if that does not answer.
	XDSAddresses []string
	// StateOfTheWorld makes the server send all resources of a type at each change,
	// instead of only the changed ones.
	StateOfTheWorld bool
	// ConnectTimeout is the timeout of each connection attempt to the control plane,
	// DefaultConnectTimeout if 0.
	ConnectTimeout time.Duration
	// Certificate holds the absolute paths of the proxy's own certificate files, which it
	// reads and watches itself. Either all are set, or none.
	Certificate node.CertificateFiles
	// SDSSocket is the absolute path of the Unix domain socket on which something on the proxy's
	// machine serves its certificate and the roots of the mesh over SDS, as the secrets "default"
	// and "ROOTCA". It excludes Certificate.
	SDSSocket string
	// TLS makes the proxy connect to the control plane over TLS, with its Certificate.
	// The server's certificate must come from a CA in the file ServerRoots (if empty, in
	// Certificate.Roots). It must be for ServerName or, if that is empty, for one of the
	// hosts in XDSAddresses. An Envoy reads TLSFiles, which are in the directory TLSDir.
	TLS                             bool
	ServerRoots, ServerName, TLSDir string
	// SystemRoots is the absolute path of the CA file that the proxy's machine trusts;
	// empty leaves it to the server.
	SystemRoots string
	// AdminAddress is the address of Envoy's admin interface; anyone who reaches it can
	// stop the proxy. Empty means DefaultAdminAddress; AdminOff means no interface.
	AdminAddress string
	// Config is what the mesh says of the proxy, nil for nothing. What the options say outranks it.
	Config *meshv1alpha1.ProxyConfig
}

func (o Options) withDefaults() Options {
	o.Domain = cmp.Or(o.Domain, DefaultDomain)
	o.Cluster = cmp.Or(o.Cluster, o.Config.GetServiceCluster(), o.tracedAs(), o.Name+"."+o.Namespace)
	o.IstioVersion = cmp.Or(o.IstioVersion, DefaultIstioVersion)
	if len(o.XDSAddresses) == 0 {
		o.XDSAddresses = []string{DefaultXDSAddress}
	}
	o.ConnectTimeout = cmp.Or(o.ConnectTimeout, DefaultConnectTimeout)
	o.AdminAddress = cmp.Or(o.AdminAddress, DefaultAdminAddress)
	if o.Type == node.Sidecar {
		o.InterceptionMode = cmp.Or(o.InterceptionMode, node.InterceptionNone)
	}
	return o
}

// tracedAs is the name of the proxy's service by the tracingServiceName of its ProxyConfig, empty if
// that sets none. (Istio: getServiceCluster.)
func (o Options) tracedAs() string {
	set, ok := o.Config.GetClusterName().(*meshv1alpha1.ProxyConfig_TracingServiceName_)
	if !ok {
		return ""
	}
	canonical := cmp.Or(o.Labels["service.istio.io/canonical-name"], o.Labels["app.kubernetes.io/name"], o.Labels["app"], o.Name)
	switch set.TracingServiceName {
	case meshv1alpha1.ProxyConfig_CANONICAL_NAME_ONLY:
		return canonical
	case meshv1alpha1.ProxyConfig_CANONICAL_NAME_AND_NAMESPACE:
		return canonical + "." + o.Namespace
	}
	return cmp.Or(o.Labels["app"], o.Name) + "." + o.Namespace
}

// The type must be one of types.
func (o Options) validate(types ...node.ProxyType) error {
	var faults *multierror.Error
	fault := func(format string, args ...any) { faults = multierror.Append(faults, fmt.Errorf(format, args...)) }

	if !slices.Contains(types, o.Type) {
		fault("type %q: use %s", o.Type, orList(types))
	}
	if len(o.IPs) == 0 {
		fault("ip: the proxy needs at least one address by which the mesh knows it")
	}
	for _, ip := range o.IPs {
		if _, err := netip.ParseAddr(ip); err != nil {
			fault("ip %q: not an IP address", ip)
		}
	}
	for _, f := range []struct{ field, value string }{
		{"name", o.Name}, {"namespace", o.Namespace}, {"domain", o.Domain},
	} {
		if err := nodePart(f.value); err != nil {
			fault("%s %q: %w", f.field, f.value, err)
		}
	}
	if err := o.validateInterception(); err != nil {
		fault("interception mode %q: %w", o.InterceptionMode, err)
	}
	if strings.Count(o.Locality, "/") > 2 {
		fault("locality %q: want region/zone/subzone", o.Locality)
	}
	if o.SelfDiscovery && o.Locality == "" {
		fault("self discovery: needs a locality, since a proxy without one knows no zone of its own")
	}
	if o.ConnectTimeout < 0 {
		fault("connect timeout %s: must be positive", o.ConnectTimeout)
	}
	for _, address := range o.XDSAddresses {
		if names.IsUnix(address) {
			continue
		}
		if _, _, err := hostPort(address); err != nil {
			fault("xds address %q: %w", address, err)
		}
	}
	for _, file := range o.certificateFiles() {
		switch {
		case file.path == "" && o.Certificate != (node.CertificateFiles{}):
			fault("%s: is missing: name cert, key and ca, or none of them", file.option)
		case file.path != "" && !path.IsAbs(file.path):
			fault("%s %q: must be an absolute path, of the proxy's machine", file.option, file.path)
		}
	}
	o.validateTLS(o.Type == node.Proxyless, fault)
	if o.SystemRoots != "" && !path.IsAbs(o.SystemRoots) {
		fault("system roots %q: must be an absolute path, of the proxy's machine", o.SystemRoots)
	}
	if o.AdminAddress != AdminOff {
		host, _, err := hostPort(o.AdminAddress)
		if err != nil {
			fault("admin address %q: %w", o.AdminAddress, err)
		} else if _, err := netip.ParseAddr(host); err != nil {
			fault("admin address %q: the host must be an IP address", o.AdminAddress)
		}
	}
	return faults.ErrorOrNil()
}

// certificateFile is a file of the proxy's certificate: the option that names it, its
// path, and the suffix of its key in the node metadata.
type certificateFile struct{ option, path, key string }

func (o Options) certificateFiles() []certificateFile {
	return []certificateFile{
		{"cert", o.Certificate.Chain, "CERT_CHAIN"}, {"key", o.Certificate.Key, "KEY"}, {"ca", o.Certificate.Roots, "ROOT_CERT"},
	}
}

func orList(types []node.ProxyType) string {
	words := make([]string, len(types))
	for i, t := range types {
		words[i] = string(t)
	}
	return strings.Join(words, " or ")
}

func isIP(host string) bool {
	_, err := netip.ParseAddr(host)
	return err == nil
}

// nodePart checks a part of the node id, whose parts are separated by "~".
func nodePart(s string) error {
	switch {
	case s == "":
		return fmt.Errorf("must not be empty")
	case strings.ContainsFunc(s, func(r rune) bool { return r == '~' || r == '/' || r <= ' ' || r == 0x7f }):
		return fmt.Errorf("must not contain ~, / or blanks")
	}
	return nil
}

func (o Options) validateInterception() error {
	switch o.InterceptionMode {
	case node.InterceptionNone, node.InterceptionRedirect, node.InterceptionTproxy:
		if o.Type == node.Router {
			return fmt.Errorf("a router intercepts nothing, leave it out")
		}
	case "":
		// Only a router's mode is still empty.
	default:
		return fmt.Errorf("use NONE, REDIRECT or TPROXY")
	}
	return nil
}

func hostPort(s string) (string, uint32, error) {
	host, text, err := net.SplitHostPort(s)
	if err != nil {
		return "", 0, fmt.Errorf("want host:port")
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil || port == 0 || host == "" {
		return "", 0, fmt.Errorf("want host:port, with a port from 1 to 65535")
	}
	return host, uint32(port), nil
}
