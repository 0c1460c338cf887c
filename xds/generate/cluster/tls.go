package cluster

import (
	"net"
	"strconv"

	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/labels"
	"github.com/portolan-mesh/portolan/xds/envoy/upstream"
	"github.com/portolan-mesh/portolan/xds/generate/transport"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/mesh/peer"
	"github.com/portolan-mesh/portolan/xds/names"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// mutualTLS are the TLS settings of mutual TLS within the mesh that no rule asks for.
var mutualTLS = &networking.ClientTLSSettings{Mode: networking.ClientTLSSettings_ISTIO_MUTUAL}

// tls returns the client TLS settings that are the same for all endpoints, nil for plaintext.
// A cluster that passes on clients' TLS originates none.
func (o Outbound) tls(v *mesh.View) *networking.ClientTLSSettings {
	switch {
	case o.Passes:
		return nil
	case o.Policy().GetTls() != nil:
		return o.Policy().GetTls()
	case !o.AutoTLS(v):
		return nil
	case v.Shape().Type == discovery.Proxyless && o.grpcTLS(v), o.Type(v.Shape()) == upstream.OriginalDst && o.allTakeTLS(v):
		return mutualTLS
	}
	return nil
}

// AutoTLS says whether connections to endpoints that take mutual TLS of the mesh are encrypted
// without a rule. It needs a certificate of the proxy. (Istio: autoDetected.)
func (o Outbound) AutoTLS(v *mesh.View) bool {
	return !o.Passes && o.Policy().GetTls() == nil && v.Mesh(mesh.EnableAutoMTLS).GetEnableAutoMtls().GetValue() &&
		!o.Service.Service().MeshExternal && o.Service.Service().Resolution != discovery.DynamicDNS && v.HasCertificate()
}

// allTakeTLS says whether the service has endpoints, and all take mutual TLS of the mesh. Where
// the proxy connects to the original destination, nothing else tells which do. (Istio:
// BestEffortInferServiceMTLSMode.)
func (o Outbound) allTakeTLS(v *mesh.View) bool {
	scope, some := v.Peers(o.Service.Namespace), false
	for _, e := range v.EndpointsOf(o.Service) {
		if e.IsFor(o.Port) {
			if some = true; !takesTLS(scope, e) {
				return false
			}
		}
	}
	return some
}

// grpcTLS says whether a gRPC client encrypts, which has one socket for all endpoints of a
// cluster: if all take mutual TLS of the mesh, or one takes nothing else. Then it does not call
// those that take none. Of endpoints that the client resolves it has the first healthy one alone.
func (o Outbound) grpcTLS(v *mesh.View) bool {
	scope, subset, one := v.Peers(o.Service.Namespace), labels.Instance(o.Subset.GetLabels()), o.Type(v.Shape()) == upstream.LogicalDNS
	some, all := false, true
	for _, e := range v.EndpointsOf(o.Service) {
		if !e.IsFor(o.Port) || !subset.SubsetOf(e.Labels) {
			continue
		}
		takes := takesGRPC(scope, o.Port, e)
		if takes && scope.Call(e.Labels, e.Port) == peer.Strict {
			return true
		}
		if one && (some || e.Health != discovery.Healthy) {
			continue
		}
		some, all = true, all && takes
	}
	return some && all
}

// takesGRPC is takesTLS for calls of gRPC clients. They offer the ALPN protocol h2 alone: a port
// that takes plaintext, too, and declares no HTTP passes their TLS to the application.
func takesGRPC(scope peer.Scope, port discovery.Port, e *discovery.Endpoint) bool {
	return takesTLS(scope, e) && (port.Protocol.IsHTTP() || scope.Call(e.Labels, e.Port) == peer.Strict)
}

// takesTLS says whether an endpoint takes mutual TLS of the mesh: its registry says that it can, by
// a label or by an account, and no PeerAuthentication turns it off.
func takesTLS(scope peer.Scope, e *discovery.Endpoint) bool {
	return e.TLSMode == discovery.TLSModeIstio && scope.Call(e.Labels, e.Port) != peer.Disable
}

// encrypt sets the TLS of connections and returns the secrets that it needs. It returns false
// if one is missing: then the cluster must not connect. The options' HTTP must be final.
func (o Outbound) encrypt(v *mesh.View, options *upstream.ClusterOptions) ([]resource.Need, bool) {
	tls := o.tls(v)
	if tls == nil && options.Type != upstream.OriginalDst && o.AutoTLS(v) {
		s, ok := transport.Client(v, mutualTLS, o.client(v, options.HTTP))
		// Istio adds a match for plaintext. Envoy uses plaintext without it too, and a cluster is
		// 140 bytes smaller.
		options.TransportMatches = []upstream.TransportMatch{{Name: names.MutualTLSMatch, TLSMode: discovery.TLSModeIstio, Transport: s.Transport}}
		return s.Needs, ok
	}
	s, ok := transport.Client(v, tls, o.client(v, options.HTTP))
	options.Transport = s.Transport
	if s.AutoSNI || s.AutoSAN {
		http := upstream.HTTP{}
		if options.HTTP != nil {
			http = *options.HTTP
		}
		http.AutoSNI, http.AutoSAN = s.AutoSNI, s.AutoSAN
		options.HTTP = &http
	}
	switch tls.GetMode() {
	case networking.ClientTLSSettings_SIMPLE, networking.ClientTLSSettings_MUTUAL:
		options.Metadata.KeepALPN = true
	}
	return s.Needs, ok
}

// Encrypted says whether connections to all endpoints are encrypted.
func (o Outbound) Encrypted(v *mesh.View) bool {
	return o.tls(v).GetMode() != networking.ClientTLSSettings_DISABLE
}

// Transport returns the socket of all connections of a gRPC client, which are of one sort. It is
// false if something is missing: then the client must not connect.
func (o Outbound) Transport(v *mesh.View) (transport.Socket, bool) {
	return transport.Client(v, o.tls(v), o.client(v, nil))
}

// Lacks says why an outbound cluster has no endpoints: what its TLS lacks. It is empty if
// nothing is missing.
func (o Outbound) Lacks(v *mesh.View) []transport.Lack {
	return transport.ClientLacks(v, o.tls(v), o.client(v, nil))
}

// TLS returns the settings of the connections that are encrypted, nil for none: those of a rule,
// or of the mesh.
func (o Outbound) TLS(v *mesh.View) *networking.ClientTLSSettings {
	if tls := o.tls(v); tls != nil || !o.AutoTLS(v) {
		return tls
	}
	return mutualTLS
}

// MutualEndpoints returns which endpoints, as host:port, take mutual TLS of the mesh without a
// rule.
func (o Outbound) MutualEndpoints(v *mesh.View) map[string]bool {
	out := map[string]bool{}
	if !o.AutoTLS(v) || o.Type(v.Shape()) == upstream.OriginalDst {
		return out
	}
	for _, l := range o.Selection(v).Localities(v.EndpointsOf(o.Service)) {
		for _, e := range l.Endpoints {
			if e.Metadata.TLSMode != "" {
				out[net.JoinHostPort(e.Host, strconv.Itoa(int(e.Port)))] = true
			}
		}
	}
	return out
}

// PeerNames returns the names of which a server must show one, as transport.PeerNames does.
func (o Outbound) PeerNames(v *mesh.View) []string {
	return transport.PeerNames(v, o.TLS(v), o.client(v, nil))
}

// Offers returns the ALPN protocols that connections within the mesh offer.
func (o Outbound) Offers(v *mesh.View) []string {
	var options upstream.ClusterOptions
	apply(o.Policy(), o.Port.Protocol, upgrades(v, o.Policy(), o.Port.Protocol), &options)
	return o.client(v, options.HTTP).Offers()
}

// ServerName is the SNI that clients within the mesh use by default.
func (o Outbound) ServerName() string {
	return names.ServerName(uint32(o.Port.Number), o.Subset.GetName(), string(o.Service.Hostname))
}

// client returns what the service and the rule say about the servers.
func (o Outbound) client(v *mesh.View, http *upstream.HTTP) transport.ClientOptions {
	out := transport.ClientOptions{
		ServerName:      o.ServerName(),
		SubjectAltNames: o.Service.Service().ServiceAccounts,
		HTTP2:           http != nil && http.Protocol == upstream.HTTP2,
		Speaks:          o.speaks(v, http),
		Selected:        o.Rule != nil && o.Rule.Selector != nil,
		Resolves:        o.Service.Service().Resolution == discovery.DynamicDNS,
	}
	if tls := o.tls(v); tls == nil || tls.GetMode() == networking.ClientTLSSettings_ISTIO_MUTUAL {
		out.SubjectAltNames = o.Service.Accounts
	}
	return out
}

// speaks returns what connections within the mesh carry. Those to a port that declares no
// protocol may carry anything.
func (o Outbound) speaks(v *mesh.View, http *upstream.HTTP) transport.Speech {
	switch {
	case v.Shape().Type == discovery.Proxyless:
		return transport.SpeaksGRPC
	case !o.Port.Protocol.IsHTTP():
		return transport.SpeaksBytes
	case http == nil:
		return transport.SpeaksHTTP1
	}
	return map[upstream.Protocol]transport.Speech{
		upstream.HTTP1: transport.SpeaksHTTP1, upstream.HTTP2: transport.SpeaksHTTP2, upstream.UseDownstream: transport.SpeaksHTTP,
	}[http.Protocol]
}

// withoutEndpoints makes a cluster with the name of these options but no endpoints.
// Requests to it get 503, and connections are closed.
func withoutEndpoints(v *mesh.View, o upstream.ClusterOptions) proto.Message {
	return upstream.Cluster(upstream.ClusterOptions{
		Name: o.Name, AltStatName: o.AltStatName, Type: upstream.Static, ConnectTimeout: connectTimeout(v), Metadata: o.Metadata,
	})
}
