package filter

import (
	"cmp"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"
	extensions "istio.io/api/extensions/v1alpha1"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"

	"github.com/portolan-mesh/portolan/xds/envoy"
	"github.com/portolan-mesh/portolan/xds/envoy/upstream"
	"github.com/portolan-mesh/portolan/xds/generate/policy"
	"github.com/portolan-mesh/portolan/xds/generate/wasmplugin"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/mesh/plugin"
	"github.com/portolan-mesh/portolan/xds/meshconfig"
	"github.com/portolan-mesh/portolan/xds/names"
)

// Kind is a kind of listener.
type Kind int

// The kinds of listeners.
const (
	SidecarOutbound Kind = iota
	SidecarInbound
	Gateway
	GRPCClient
	GRPCServer
)

// HTTP returns the HTTP filters of a listener, in the order in which a request passes
// them. The order is Istio's: external authorization, JWT, RBAC, gRPC-Web, fault, CORS,
// statistics, router. WasmPlugins stand before JWT, before RBAC or behind it, by their phase.
// EnvoyFilters insert theirs relative to these. The filter that resolves the
// hosts of requests comes right before the router, when the hosts are final.
//
// Every listener for outgoing requests has the filters for gRPC-Web, faults and CORS, even if
// no route uses them. So a changed route changes no listener and drains no connection. gRPC
// clients know only faults.
func HTTP(v *mesh.View, k Kind, o Options) []*hcmv3.HttpFilter {
	var out []*hcmv3.HttpFilter
	plugins := k.plugins(v, false, o.Port)
	if k.guarded() {
		for slot := range policy.HTTPSlots() {
			switch slot.Name {
			case names.HTTPTokens:
				out = append(out, plugins.HTTP(extensions.PluginPhase_AUTHN)...)
			case names.HTTPAudit:
				out = append(out, plugins.HTTP(extensions.PluginPhase_AUTHZ)...)
			}
			out = append(out, envoy.GuardFilter(slot.Name, slot.Accepts()))
		}
	}
	if len(o.Identities) > 0 {
		out = append(out, envoy.IdentityFilter(o.Identities))
	}
	out = append(out, plugins.HTTP(lastPhase)...)
	if k == GRPCServer {
		out = append(out, grpcGuards(v)...)
	}
	forBrowsers := k == SidecarOutbound || k == Gateway
	if forBrowsers || o.GRPCWeb {
		out = append(out, envoy.GRPCWebFilter(o.GRPCWeb))
	}
	if k.routed() {
		out = append(out, envoy.FaultFilter())
	}
	if forBrowsers {
		out = append(out, envoy.CORSFilter())
	}
	if o.DynamicDNS {
		out = append(out, envoy.DynamicDNSFilter(DNSFamily(v.Shape())))
	}
	if k.ofEnvoy() && !v.ProxyConfig().WritesDebugHeaders() {
		return append(out, envoy.QuietRouterFilter())
	}
	return append(out, envoy.RouterFilter())
}

// ofEnvoy says whether such a listener is one of an Envoy.
func (k Kind) ofEnvoy() bool { return k == SidecarOutbound || k == SidecarInbound || k == Gateway }

// lastPhase is the phase of plugins that say none.
const lastPhase = extensions.PluginPhase_UNSPECIFIED_PHASE

// plugins returns the WasmPlugins of such a listener. gRPC programs have none.
func (k Kind) plugins(v *mesh.View, network bool, port int) *wasmplugin.Plugins {
	if !k.ofEnvoy() {
		return &wasmplugin.Plugins{}
	}
	return wasmplugin.At(v, plugin.Place{Server: k == SidecarInbound, Network: network, Port: port})
}

// grpcGuards returns the filters of the policies of a gRPC server, which takes none by ECDS.
func grpcGuards(v *mesh.View) []*hcmv3.HttpFilter {
	var out []*hcmv3.HttpFilter
	for slot := range policy.HTTPSlots() {
		if config := slot.GRPC(v); config != nil {
			out = append(out, envoy.RBACFilter(slot.Name, config))
		}
	}
	return out
}

// routed says whether VirtualServices make the routes of such a listener.
func (k Kind) routed() bool { return k == SidecarOutbound || k == Gateway || k == GRPCClient }

// guarded says whether policies judge what such a listener takes.
func (k Kind) guarded() bool { return k == SidecarInbound || k == Gateway }

// Options describe the connection manager of one listener.
type Options struct {
	StatPrefix string
	// Port is the port of the service, of a gateway or of the workload; 0 if the chain is for any.
	Port int
	// RouteConfigName names routes that come over ADS. RouteConfig has routes that are
	// part of the listener, and wins.
	RouteConfigName string
	RouteConfig     *routev3.RouteConfiguration
	// HTTP3: the listener is for QUIC.
	HTTP3 bool
	// DynamicDNS: the proxy resolves the hosts of requests whose routes ask for it.
	DynamicDNS bool
	// GRPCWeb: the proxy translates the gRPC-Web of browsers in all requests, not only on the
	// routes that ask for it.
	GRPCWeb bool
	// Identities are the beginnings of the identities of which a caller must have proved one, where
	// the socket does not see to that; none means anybody.
	Identities []string
}

// Manager makes the HTTP connection manager of an Envoy's listener.
func Manager(v *mesh.View, k Kind, o Options) *listenerv3.Filter {
	config := v.ProxyConfig()
	server, keep := config.ServerHeader()
	manager := envoy.HTTPOptions{
		StatPrefix:      o.StatPrefix,
		RouteConfigName: o.RouteConfigName,
		RouteConfig:     o.RouteConfig,
		Normalization:   v.Mesh(mesh.PathNormalization).GetPathNormalization().GetNormalization(),
		HTTP3:           o.HTTP3,
		Filters:         HTTP(v, k, o),
		AccessLogs:      requestLogs(v, k),
		ServerName:      server,
		Proxy: envoy.HTTPProxy{
			KeepServer: keep, NoRequestID: !config.MakesRequestIDs(), ForwardPort: config.ForwardsPort(),
			PreserveCase: config.PreservesHeaderCase(), HTTP10: config.AcceptsHTTP10(),
			IdleTimeout: config.IdleTimeout(), Connections: config.Connections(k == Gateway),
		},
	}
	traced, ids := traces(v, k)
	manager.Tracing, manager.UntracedIDs = traced, !ids
	switch k {
	case SidecarInbound:
		manager.ServerName = cmp.Or(server, envoy.ServerName)
		manager.ClientCert = clientCert(config.ForwardClientCert())
		manager.ClientCertDetails = clientCertDetails(config.ClientCertDetails())
	case Gateway:
		manager.ServerName = cmp.Or(server, envoy.ServerName)
		manager.Edge = true
		manager.TrustedHops = config.TrustedProxies()
		manager.ClientCert = clientCert(config.GatewayForwardClientCert())
		manager.ClientCertDetails = clientCertDetails(meshconfig.ClientCertDetails{Subject: true, Cert: true, DNS: true, URI: true})
	}
	return envoy.HTTPConnectionManager(manager)
}

// clientCert says how a proxy handles X-Forwarded-Client-Cert.
func clientCert(d meshv1alpha1.ForwardClientCertDetails) hcmv3.HttpConnectionManager_ForwardClientCertDetails {
	switch d {
	case meshv1alpha1.ForwardClientCertDetails_SANITIZE:
		return hcmv3.HttpConnectionManager_SANITIZE
	case meshv1alpha1.ForwardClientCertDetails_FORWARD_ONLY:
		return hcmv3.HttpConnectionManager_FORWARD_ONLY
	case meshv1alpha1.ForwardClientCertDetails_APPEND_FORWARD:
		return hcmv3.HttpConnectionManager_APPEND_FORWARD
	case meshv1alpha1.ForwardClientCertDetails_ALWAYS_FORWARD_ONLY:
		return hcmv3.HttpConnectionManager_ALWAYS_FORWARD_ONLY
	}
	return hcmv3.HttpConnectionManager_SANITIZE_SET
}

func clientCertDetails(d meshconfig.ClientCertDetails) *hcmv3.HttpConnectionManager_SetCurrentClientCertDetails {
	return &hcmv3.HttpConnectionManager_SetCurrentClientCertDetails{
		Subject: wrapperspb.Bool(d.Subject), Cert: d.Cert, Chain: d.Chain, Dns: d.DNS, Uri: d.URI,
	}
}

// DNSFamily is the address family that proxies of a shape can reach and therefore
// resolve.
func DNSFamily(shape mesh.Shape) upstream.DNSFamily {
	switch {
	case shape.IPv4 && shape.IPv6:
		return upstream.DNSAll
	case shape.IPv6:
		return upstream.DNSv6Only
	}
	return upstream.DNSv4Only
}
