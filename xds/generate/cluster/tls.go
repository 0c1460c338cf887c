package cluster

import (
	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/xds/envoy"
	"github.com/portolan-mesh/portolan/xds/generate/transport"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/names"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// tls returns the client TLS settings, nil for plaintext. A cluster that passes on
// clients' TLS originates none.
func (o Outbound) tls() *networking.ClientTLSSettings {
	if o.Passes {
		return nil
	}
	return o.Policy().GetTls()
}

// encrypt sets the TLS that the policy requires and returns the secrets it needs. It
// returns false if one is missing: then the cluster must not connect. The options' HTTP
// must be final.
func (o Outbound) encrypt(v *mesh.View, options *envoy.ClusterOptions) ([]resource.Need, bool) {
	s, ok := transport.Client(v, o.tls(), o.client(v, options.HTTP))
	options.Transport = s.Transport
	if s.AutoSNI || s.AutoSAN {
		http := envoy.UpstreamHTTP{}
		if options.HTTP != nil {
			http = *options.HTTP
		}
		http.AutoSNI, http.AutoSAN = s.AutoSNI, s.AutoSAN
		options.HTTP = &http
	}
	switch o.tls().GetMode() {
	case networking.ClientTLSSettings_SIMPLE, networking.ClientTLSSettings_MUTUAL:
		options.Metadata.KeepALPN = true
	}
	return s.Needs, ok
}

// Encrypted says whether the policy requires TLS for connections.
func (o Outbound) Encrypted() bool {
	return o.tls().GetMode() != networking.ClientTLSSettings_DISABLE
}

// Lacks says why an outbound cluster has no endpoints: what its TLS lacks. It is empty if
// nothing is missing.
func (o Outbound) Lacks(v *mesh.View) []transport.Lack {
	return transport.ClientLacks(v, o.tls(), o.client(v, nil))
}

// ServerName is the SNI that clients within the mesh use by default.
func (o Outbound) ServerName() string {
	return names.ServerName(uint32(o.Port.Number), o.Subset.GetName(), string(o.Service.Hostname))
}

// client returns what the service and the rule say about the servers.
func (o Outbound) client(v *mesh.View, http *envoy.UpstreamHTTP) transport.ClientOptions {
	out := transport.ClientOptions{
		ServerName:      o.ServerName(),
		SubjectAltNames: o.Service.Service().ServiceAccounts,
		HTTP2:           http != nil && http.Protocol == envoy.HTTP2,
		Selected:        o.Rule != nil && o.Rule.Selector != nil,
		Resolves:        o.Service.Service().Resolution == discovery.DynamicDNS,
	}
	if o.tls().GetMode() == networking.ClientTLSSettings_ISTIO_MUTUAL {
		out.SubjectAltNames = o.Service.Accounts
	}
	return out
}

// withoutEndpoints makes a cluster with the name of these options but no endpoints.
// Requests to it get 503, and connections are closed.
func withoutEndpoints(v *mesh.View, o envoy.ClusterOptions) proto.Message {
	return envoy.Cluster(envoy.ClusterOptions{
		Name: o.Name, AltStatName: o.AltStatName, Type: envoy.Static, ConnectTimeout: connectTimeout(v), Metadata: o.Metadata,
	})
}
