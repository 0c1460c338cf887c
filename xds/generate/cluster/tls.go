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

// tls returns the TLS settings of connections, nil for plaintext. The proxy passes on
// unchanged what a client has encrypted.
func (o Outbound) tls() *networking.ClientTLSSettings {
	if o.Passes {
		return nil
	}
	return o.Policy().GetTls()
}

// encrypt encrypts the connections of an outbound cluster as the policy says, and returns
// the secrets that they need. It returns false if one is missing: then the cluster must not
// connect. What the options say of HTTP must be final.
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

// Encrypted says whether connections are to be encrypted.
func (o Outbound) Encrypted() bool {
	return o.tls().GetMode() != networking.ClientTLSSettings_DISABLE
}

// Lacks says what the connections of an outbound cluster lack, so that it has no endpoints;
// nothing if it lacks nothing.
func (o Outbound) Lacks(v *mesh.View) []transport.Lack {
	return transport.ClientLacks(v, o.tls(), o.client(v, nil))
}

// ServerName is the name that clients within the mesh ask for unless they are told another.
func (o Outbound) ServerName() string {
	return names.ServerName(uint32(o.Port.Number), o.Subset.GetName(), string(o.Service.Hostname))
}

// client is what there is to know of the servers.
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

// withoutEndpoints is the cluster of options that has none: requests to it are answered with
// 503, and connections closed.
func withoutEndpoints(v *mesh.View, o envoy.ClusterOptions) proto.Message {
	return envoy.Cluster(envoy.ClusterOptions{
		Name: o.Name, AltStatName: o.AltStatName, Type: envoy.Static, ConnectTimeout: connectTimeout(v), Metadata: o.Metadata,
	})
}
