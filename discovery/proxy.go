package discovery

import (
	"fmt"
	"iter"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/portolan-mesh/portolan/discovery/node"
	"github.com/portolan-mesh/portolan/storage/labels"
)

// ProxyType is the role of a proxy.
type ProxyType = node.ProxyType

// The proxy types.
const (
	Sidecar      = node.Sidecar
	Router       = node.Router
	Proxyless    = node.Proxyless
	ConfigClient = node.ConfigClient
)

// InterceptionMode is how traffic is redirected to a sidecar.
type InterceptionMode = node.InterceptionMode

// The interception modes.
const (
	InterceptionNone     = node.InterceptionNone
	InterceptionRedirect = node.InterceptionRedirect
	InterceptionTproxy   = node.InterceptionTproxy
)

// CertificateFiles holds the paths of a certificate on a proxy's machine.
type CertificateFiles = node.CertificateFiles

// Proxy is a client as it describes itself when it connects. It is never modified.
type Proxy struct {
	// ID is the whole node id, type~ip~id~domain.
	ID          string
	Type        ProxyType
	IPAddresses []string // at least one, as given; a ConfigClient may have none
	Name        string   // the id part
	DNSDomain   string
	// Namespace is the namespace of its configuration.
	Namespace string
	// MetadataLabels are the labels in LABELS, and StaticLabels those in STATIC_LABELS. The
	// registry's labels for its address take precedence over MetadataLabels.
	MetadataLabels, StaticLabels labels.Instance
	// GroupLabels are what the entry that its group has for it will have: they stand for the
	// registry's until that entry is there.
	GroupLabels    labels.Instance
	ServiceAccount string
	// Group is the WorkloadGroup of its namespace in which it asks to be registered
	// (AUTO_REGISTER_GROUP); empty if it does not.
	Group string
	// Identity is the SPIFFE identity that the client proved, such as
	// "spiffe://cluster.local/ns/shop/sa/web"; empty if it proved none. It takes precedence
	// over the address: see Serves and WorkloadLabels.
	Identity string
	// Local is true if the client connects from the server's own machine, and the server
	// trusts what it says.
	Local bool
	// Doubted is true after Doubt.
	Doubted bool
	// Certificate names the files of the proxy's own certificate on its machine:
	// TLS_CLIENT_CERT_CHAIN, TLS_CLIENT_KEY and TLS_CLIENT_ROOT_CERT, or the same of
	// TLS_SERVER. It is zero if it has none.
	Certificate CertificateFiles
	// SecretCluster is the cluster of the proxy's bootstrap that serves its own certificate and
	// the roots of the mesh over SDS, such as an agent on its machine (SDS_CLUSTER). It is empty
	// if they do not come so.
	SecretCluster string
	// SystemRoots is the file of the authorities that the proxy's machine trusts
	// (SYSTEM_ROOTS); empty if the proxy does not say.
	SystemRoots        string
	ClusterID, Network string
	// NodeName is the node of Kubernetes that the proxy says to be on (NODE_NAME).
	NodeName         string
	InterceptionMode InterceptionMode
	// DNSCapture is true if applications beside the proxy resolve services to their assigned
	// addresses (DNS_CAPTURE).
	DNSCapture bool
	// SelfDiscovery is true if the proxy has a cluster of the endpoints of its own service,
	// with which it balances load among zones (ENABLE_SELF_DISCOVERY).
	SelfDiscovery bool
	// HTTPProxyPort is the port on which a sidecar serves as HTTP proxy (HTTP_PROXY_PORT), "0"
	// for none; empty means that the mesh decides.
	HTTPProxyPort string
	// Settings are what the proxy states of its own configuration.
	Settings ProxySettings
	Version  string // ISTIO_VERSION
	Locality string // region/zone/subzone
	// Metadata are those of the node's metadata that are strings.
	Metadata map[string]string
	// EnvoyVersion is the version in the client's build; empty if there is none. For a client
	// other than Envoy it begins with the client's name, as in "gRPC Go 1.85.0".
	EnvoyVersion string
	// ServiceName is the cluster of the node, by which traces name what the proxy serves.
	ServiceName string
	// RouteDelta is true if the client takes virtual hosts as separate resources.
	RouteDelta bool
	// Returning is true if the client has resources of an earlier stream, as its first request says.
	Returning bool
	// Listeners are the listeners that a gRPC server has asked for, by name, in order.
	Listeners []string
}

// ParseProxy reads the node of a first request. The id has the form type~ip~id~domain (Istio:
// ParseServiceNodeWithMetadata). Metadata INSTANCE_IPS takes precedence over the ip, and
// NAMESPACE over the first label of the domain. Booleans and lists may be strings. A node with
// metadata GENERATOR: grpc, or whose client identifies itself as gRPC, is Proxyless whatever
// its id says. A node with GENERATOR: api is a ConfigClient.
func ParseProxy(node *corev3.Node) (_ *Proxy, err error) {
	if node == nil {
		return nil, fmt.Errorf("the first request has no node: set node.id to type~ip~id~domain")
	}
	parts := strings.Split(node.GetId(), "~")
	if len(parts) != 4 {
		return nil, fmt.Errorf("node id %q: want type~ip~id~domain", node.GetId())
	}
	p := &Proxy{ID: node.GetId(), Type: ProxyType(parts[0]), Name: parts[2], DNSDomain: parts[3]}
	if p.Type != Sidecar && p.Type != Router {
		return nil, fmt.Errorf("node id %q: type %q is not served: use sidecar or router", node.GetId(), parts[0])
	}
	if p.Name == "" {
		return nil, fmt.Errorf("node id %q: the third part, the proxy's name, is empty", node.GetId())
	}
	metadata := node.GetMetadata().GetFields()
	p.IPAddresses = validIPs(list(metadata["INSTANCE_IPS"]))
	if len(p.IPAddresses) == 0 {
		p.IPAddresses = validIPs([]string{parts[1]})
	}
	generator := text(metadata["GENERATOR"])
	if len(p.IPAddresses) == 0 && generator != string(ConfigClient) {
		return nil, fmt.Errorf("node id %q: %q is not an IP address", node.GetId(), parts[1])
	}
	p.Namespace = text(metadata["NAMESPACE"])
	if p.Namespace == "" {
		p.Namespace, _, _ = strings.Cut(p.DNSDomain, ".")
	}
	p.MetadataLabels = stringMap(metadata["LABELS"])
	p.StaticLabels = stringMap(metadata["STATIC_LABELS"])
	p.ServiceAccount = text(metadata["SERVICE_ACCOUNT"])
	p.Group = text(metadata["AUTO_REGISTER_GROUP"])
	p.ClusterID = text(metadata["CLUSTER_ID"])
	p.Network = text(metadata["NETWORK"])
	p.NodeName = text(metadata["NODE_NAME"])
	p.Version, p.Metadata = text(metadata["ISTIO_VERSION"]), texts(metadata)
	p.InterceptionMode = InterceptionMode(strings.ToUpper(text(metadata["INTERCEPTION_MODE"])))
	if p.InterceptionMode == "" {
		p.InterceptionMode = InterceptionRedirect
	}
	switch {
	case generator == string(ConfigClient):
		p.Type, p.InterceptionMode = ConfigClient, InterceptionNone
	case isProxyless(generator, node.GetUserAgentName()):
		p.Type, p.InterceptionMode = Proxyless, InterceptionNone
	}
	p.DNSCapture, _ = strconv.ParseBool(text(metadata["DNS_CAPTURE"]))
	if p.Type != Proxyless {
		p.SelfDiscovery, _ = strconv.ParseBool(text(metadata["ENABLE_SELF_DISCOVERY"]))
	}
	if port, err := strconv.ParseUint(text(metadata["HTTP_PROXY_PORT"]), 10, 16); err == nil {
		p.HTTPProxyPort = strconv.FormatUint(port, 10)
	}
	if l := node.GetLocality(); l != nil {
		p.Locality = LocalityOf(l.GetRegion(), l.GetZone(), l.GetSubZone())
	}
	if p.Certificate, err = certificateFiles(metadata); err != nil {
		return nil, fmt.Errorf("node id %q: %w", node.GetId(), err)
	}
	if p.SecretCluster = text(metadata["SDS_CLUSTER"]); p.SecretCluster != "" && p.Certificate != (CertificateFiles{}) {
		return nil, fmt.Errorf("node id %q: its metadata have SDS_CLUSTER and TLS_CLIENT_CERT_CHAIN or TLS_SERVER_CERT_CHAIN: a proxy has one certificate, so name one source", node.GetId())
	}
	p.SystemRoots = text(metadata["SYSTEM_ROOTS"])
	if p.Settings, err = proxySettings(metadata); err != nil {
		return nil, fmt.Errorf("node id %q: %w", node.GetId(), err)
	}
	p.EnvoyVersion, p.ServiceName = build(node), node.GetCluster()
	return p, nil
}

// The user agents of gRPC libraries: "gRPC Go", "gRPC C-core linux", "gRPC Java", "gRPC Node
// Pure JS".
const grpcUserAgent = "gRPC "

// isProxyless says whether a node is a gRPC client. The metadata GENERATOR takes precedence
// over the name of the library.
func isProxyless(generator, userAgent string) bool {
	if generator != "" {
		return generator == string(Proxyless)
	}
	return strings.HasPrefix(userAgent, grpcUserAgent)
}

func build(node *corev3.Node) string {
	if v := node.GetUserAgentBuildVersion().GetVersion(); v != nil {
		return fmt.Sprintf("%d.%d.%d", v.GetMajorNumber(), v.GetMinorNumber(), v.GetPatch())
	}
	if strings.HasPrefix(node.GetUserAgentName(), grpcUserAgent) {
		return strings.TrimSpace(node.GetUserAgentName() + " " + node.GetUserAgentVersion())
	}
	return ""
}

// certificateFiles reads the paths in node metadata. A proxy has one certificate, for outgoing
// and incoming connections.
func certificateFiles(metadata map[string]*structpb.Value) (CertificateFiles, error) {
	read := func(end string) (CertificateFiles, error) {
		keys := [...]string{"TLS_" + end + "_CERT_CHAIN", "TLS_" + end + "_KEY", "TLS_" + end + "_ROOT_CERT"}
		var paths [len(keys)]string
		var missing []string
		for i, key := range keys {
			if paths[i] = text(metadata[key]); paths[i] == "" {
				missing = append(missing, key)
			}
		}
		if len(missing) > 0 && len(missing) < len(keys) {
			return CertificateFiles{}, fmt.Errorf("its metadata lack %s: name all of %s, or none", strings.Join(missing, " and "), strings.Join(keys[:], ", "))
		}
		return CertificateFiles{Chain: paths[0], Key: paths[1], Roots: paths[2]}, nil
	}
	client, err := read("CLIENT")
	if err != nil {
		return client, err
	}
	server, err := read("SERVER")
	if err != nil || server == client || server == (CertificateFiles{}) {
		return client, err
	}
	if client != (CertificateFiles{}) {
		return client, fmt.Errorf("its metadata TLS_CLIENT_CERT_CHAIN and TLS_SERVER_CERT_CHAIN, or the keys and roots beside them, differ: a proxy has one certificate, so name the same files")
	}
	return server, nil
}

// HasCertificate says whether the proxy has a certificate of the mesh, as it says itself.
func (p *Proxy) HasCertificate() bool {
	return p.Certificate != CertificateFiles{} || p.SecretCluster != ""
}

// MayHaveSecrets says whether the proxy may have the secrets of its namespace. It must have
// proved an identity in that namespace, with the service account that it names, if it names
// one. A proxy that proved none must be on the server's own machine, which is trusted.
func (p *Proxy) MayHaveSecrets() bool {
	if p.Identity == "" {
		return p.Local
	}
	_, rest, _ := strings.Cut(strings.TrimPrefix(p.Identity, "spiffe://"), "/")
	account, ok := strings.CutPrefix(rest, "ns/"+p.Namespace+"/sa/")
	return ok && p.Namespace != "" && (p.ServiceAccount == "" || p.ServiceAccount == account)
}

// Doubt has the server believe nothing that the proxy says of itself without proof: it is not
// Local, and a gateway has no labels, neither its own nor those of the addresses that it states.
func (p *Proxy) Doubt() {
	p.Local, p.Doubted = false, true
	if p.Type == Router {
		p.MetadataLabels, p.StaticLabels = nil, nil
	}
}

// Serves says whether an endpoint at an address of the proxy can belong to its workload. It
// cannot if its account differs from the identity that the proxy proved.
func (p *Proxy) Serves(e *Endpoint) bool {
	return p.Identity == "" || e.ServiceAccount == "" || e.ServiceAccount == p.Identity
}

// describes says whether an endpoint at an address of the proxy may determine the proxy's
// labels. If the proxy proved an identity, the endpoint must have it. A gateway often
// shares its address with an application, so an endpoint describes it only if it has all
// labels that the gateway states: it may add some, and takes none away.
func (p *Proxy) describes(e *Endpoint) bool {
	return len(e.Labels) > 0 && (!p.Doubted || p.Type != Router) && (p.Identity == "" || e.ServiceAccount == p.Identity) &&
		(p.Type != Router || p.MetadataLabels.SubsetOf(e.Labels))
}

// WorkloadLabels returns the labels of the proxy's Workload; nil if it has none.
func (p *Proxy) WorkloadLabels(at func(ip string) iter.Seq2[string, []*Endpoint]) labels.Instance {
	if e := p.Workload(at); e != nil {
		return e.Labels
	}
	return nil
}

// Workload returns the first endpoint with labels at the proxy's addresses, preferably of the pod
// that has the proxy's name, else of a service in the proxy's namespace; nil if there is none. Pods
// in the network of their host share its address. at lists the endpoints of an address
// in a fixed order, with the namespace of their service. If the proxy proved an identity,
// endpoints without it do not count. Loopback addresses never count, because every machine has
// them.
func (p *Proxy) Workload(at func(ip string) iter.Seq2[string, []*Endpoint]) *Endpoint {
	var own, other *Endpoint
	short, _, _ := strings.Cut(p.Name, ".")
	for _, ip := range p.IPAddresses {
		if isLoopback(ip) {
			continue
		}
		for namespace, endpoints := range at(ip) {
			for _, e := range endpoints {
				switch {
				case !p.describes(e):
				case e.Node != "" && e.Namespace == p.Namespace && e.WorkloadName == short:
					return e
				case namespace == p.Namespace && own == nil:
					own = e
				case other == nil:
					other = e
				}
			}
		}
	}
	if own != nil {
		return own
	}
	return other
}

func isLoopback(address string) bool {
	ip, err := netip.ParseAddr(address)
	return err == nil && ip.IsLoopback()
}

// Labels returns the labels that selectors see: the static labels, overridden by the
// registries' labels for the proxy's address or, if there are none, by its group's, and without
// a group by the node's own.
func (p *Proxy) Labels(registry labels.Instance) labels.Instance {
	top := registry
	for _, other := range []labels.Instance{p.GroupLabels, p.MetadataLabels} {
		if len(top) == 0 {
			top = other
		}
	}
	out := make(labels.Instance, len(top)+len(p.StaticLabels))
	for k, v := range p.StaticLabels {
		out[k] = v
	}
	for k, v := range top {
		out[k] = v
	}
	return out
}

// SupportsIPv4 says whether the proxy has an IPv4 address.
func (p *Proxy) SupportsIPv4() bool { return slices.ContainsFunc(p.IPAddresses, isIPv4) }

// SupportsIPv6 says whether the proxy has an IPv6 address.
func (p *Proxy) SupportsIPv6() bool {
	return slices.ContainsFunc(p.IPAddresses, func(s string) bool { return !isIPv4(s) })
}

func isIPv4(s string) bool {
	ip, err := netip.ParseAddr(s)
	return err == nil && ip.Unmap().Is4()
}

func validIPs(in []string) []string {
	var out []string
	for _, s := range in {
		if _, err := netip.ParseAddr(strings.TrimSpace(s)); err == nil {
			out = append(out, strings.TrimSpace(s))
		}
	}
	return out
}

// text reads a metadata value as a string, whatever scalar it is.
func text(v *structpb.Value) string {
	switch k := v.GetKind().(type) {
	case *structpb.Value_StringValue:
		return k.StringValue
	case *structpb.Value_BoolValue:
		return strconv.FormatBool(k.BoolValue)
	case *structpb.Value_NumberValue:
		return strconv.FormatFloat(k.NumberValue, 'f', -1, 64)
	}
	return ""
}

// list reads a list, or a string of values separated by commas.
func list(v *structpb.Value) []string {
	if l := v.GetListValue(); l != nil {
		var out []string
		for _, e := range l.GetValues() {
			out = append(out, text(e))
		}
		return out
	}
	if s := text(v); s != "" {
		return strings.Split(s, ",")
	}
	return nil
}

func stringMap(v *structpb.Value) labels.Instance {
	fields := v.GetStructValue().GetFields()
	if len(fields) == 0 {
		return nil
	}
	out := make(labels.Instance, len(fields))
	for k, e := range fields {
		out[k] = text(e)
	}
	return out
}

// IsNamed says whether a text names the proxy. It may be its node id, an address, or its name,
// with or without the namespace and what follows the first dot.
func (p *Proxy) IsNamed(text string) bool {
	short, _, _ := strings.Cut(p.Name, ".")
	names := []string{p.ID, p.Name, short, p.Namespace + "/" + p.Name, p.Namespace + "/" + short}
	return slices.Contains(names, text) || slices.Contains(p.IPAddresses, text)
}

// texts returns the values that are strings.
func texts(fields map[string]*structpb.Value) map[string]string {
	out := make(map[string]string, len(fields))
	for k, v := range fields {
		if s, ok := v.GetKind().(*structpb.Value_StringValue); ok {
			out[k] = s.StringValue
		}
	}
	return out
}
