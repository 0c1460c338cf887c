package mesh

import (
	"cmp"
	"slices"

	"google.golang.org/protobuf/reflect/protoreflect"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/xds/meshconfig"
)

// MeshConfigOf returns the object of the mesh configuration, nil if there is none. root is the root
// namespace of the mesh.
func MeshConfigOf(configs *cache.Snapshot, root string) *config.Config {
	return configs.Get(config.Key{Kind: schema.MeshConfig, Namespace: root, Name: schema.MeshConfigName})
}

// MeshConfigAt returns the mesh configuration in effect, of a file and of a configuration.
func MeshConfigAt(file *meshconfig.Config, configs *cache.Snapshot) *meshconfig.Config {
	return meshOf(nil, Inputs{MeshFile: file, Configs: configs})
}

// meshOf returns the mesh configuration of inputs. It is that of p if they are equal.
func meshOf(p *PushContext, in Inputs) *meshconfig.Config {
	object := MeshConfigOf(in.Configs, in.MeshFile.GetRootNamespace())
	if p != nil && in.MeshFile == p.inputs.MeshFile && object == MeshConfigOf(p.inputs.Configs, in.MeshFile.GetRootNamespace()) {
		return p.mesh
	}
	out := in.MeshFile
	if object != nil {
		out = out.With(schema.WithoutFileOnly(object.Spec.(*meshv1alpha1.MeshConfig))).DecidedBy(object.Key(), out)
	}
	if p != nil && p.mesh.Equal(out) {
		return p.mesh
	}
	return out
}

// Field is the name of a field of MeshConfig, as in its .proto.
type Field string

// The fields that generators query.
const (
	AccessLogEncoding        Field = "access_log_encoding"
	AccessLogFile            Field = "access_log_file"
	AccessLogFormat          Field = "access_log_format"
	ConnectTimeout           Field = "connect_timeout"
	DefaultHTTPRetryPolicy   Field = "default_http_retry_policy"
	DefaultProviders         Field = "default_providers"
	DefaultProxyConfig       Field = "default_config"
	DefaultTrafficPolicy     Field = "default_traffic_policy"
	DisableEnvoyListenerLog  Field = "disable_envoy_listener_log"
	DNSRefreshRate           Field = "dns_refresh_rate"
	EnableAutoMTLS           Field = "enable_auto_mtls"
	ExtensionProviders       Field = "extension_providers"
	H2UpgradePolicy          Field = "h2_upgrade_policy"
	InboundClusterStatName   Field = "inbound_cluster_stat_name"
	InboundTrafficPolicy     Field = "inbound_traffic_policy"
	LocalityLbSetting        Field = "locality_lb_setting"
	MeshMTLS                 Field = "mesh_mTLS"
	OutboundClusterStatName  Field = "outbound_cluster_stat_name"
	OutboundTrafficPolicy    Field = "outbound_traffic_policy"
	PathNormalization        Field = "path_normalization"
	ProtocolDetectionTimeout Field = "protocol_detection_timeout"
	ProxyInboundListenPort   Field = "proxy_inbound_listen_port"
	ProxyListenPort          Field = "proxy_listen_port"
	TCPKeepalive             Field = "tcp_keepalive"
	TLSDefaults              Field = "tls_defaults"
	TrustDomain              Field = "trust_domain"
	TrustDomainAliases       Field = "trust_domain_aliases"
	ZoneAwareLbSetting       Field = "zone_aware_lb_setting"
	// HTTP3 is meshconfig.Config.HTTP3, which is no field of the protobuf message.
	HTTP3 Field = "http3"
)

// fields holds the mesh configuration field by field. A row is a configuration with one
// field, so a changed field concerns only the readers of that field. It names the object that decides
// the field.
type fields struct{ tableOf[*meshconfig.Config] }

var fieldRows = fields{tableOf[*meshconfig.Config]{MeshConfig}}

func (t fields) follow(from, to *PushContext) {
	if from.mesh == to.mesh {
		return
	}
	all := pmap.Map[*meshconfig.Config]{}
	to.mesh.ProtoReflect().Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		row := &meshconfig.Config{MeshConfig: &meshv1alpha1.MeshConfig{}}
		row.ProtoReflect().Set(field, value)
		name := string(field.Name())
		if slices.Contains(to.mesh.Fields, name) {
			row.Object, row.Fields = to.mesh.Object, []string{name}
		}
		if old := t.rowsOf(from).Value(name); old != nil && old.Equal(row) {
			row = old
		}
		all = all.Set(name, row)
		return true
	})
	if to.mesh.HTTP3 {
		row := t.rowsOf(from).Value(string(HTTP3))
		if row == nil {
			row = &meshconfig.Config{MeshConfig: &meshv1alpha1.MeshConfig{}, HTTP3: true}
		}
		all = all.Set(string(HTTP3), row)
	}
	t.replace(to, all)
}

// unset answers queries for a field that is not set.
var unset = &meshconfig.Config{MeshConfig: &meshv1alpha1.MeshConfig{}}

func (t fields) answer(v *View, field, _ string) any {
	return cmp.Or(t.rowsOf(v.push).Value(field), unset)
}

// Mesh returns a mesh configuration in which at most the given field is set.
func (v *View) Mesh(field Field) *meshconfig.Config {
	return v.ask(MeshConfig, string(field), "").(*meshconfig.Config)
}

// sameTables says whether two configurations lead to the same rows in all tables except
// MeshConfig.
func sameTables(c, o *meshconfig.Config) bool {
	return c.Domain == o.Domain && c.HostConsent == o.HostConsent && c.GetRootNamespace() == o.GetRootNamespace() &&
		c.GetIngressControllerMode() == o.GetIngressControllerMode() && c.GetIngressClass() == o.GetIngressClass() &&
		c.GetIngressSelector() == o.GetIngressSelector() && c.GetIngressService() == o.GetIngressService() &&
		slices.Equal(c.GetDefaultVirtualServiceExportTo(), o.GetDefaultVirtualServiceExportTo()) &&
		slices.Equal(c.GetDefaultDestinationRuleExportTo(), o.GetDefaultDestinationRuleExportTo())
}
