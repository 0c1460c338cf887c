package meshconfig

import (
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"

	"github.com/portolan-mesh/portolan/storage/config"
)

// With returns the configuration with another laid over it, as Istio merges them. A field that is
// set in over replaces that of c. There are four exceptions. The fields of defaultConfig and of
// defaultProviders replace one by one, in defaultConfig also those of proxyHeaders and the entries
// of proxyMetadata. An extension provider replaces the one of its name. Aliases of the trust domain
// are added. (Istio: pkg/config/mesh/mesh.go.)
//
// Protobuf does not tell an empty text, 0 or false from a field that is not set. So over cannot
// set such a field back.
func (c *Config) With(over *meshv1alpha1.MeshConfig) *Config {
	out := *c
	out.MeshConfig = &meshv1alpha1.MeshConfig{}
	lay(out.MeshConfig, c.MeshConfig)
	lay(out.MeshConfig, over)
	if over.GetDefaultConfig() != nil {
		out.DefaultConfig = proxyConfigWith(c.GetDefaultConfig(), over.GetDefaultConfig())
	}
	if over.GetDefaultProviders() != nil {
		out.DefaultProviders = &meshv1alpha1.MeshConfig_DefaultProviders{}
		lay(out.DefaultProviders, c.GetDefaultProviders())
		lay(out.DefaultProviders, over.GetDefaultProviders())
	}
	out.ExtensionProviders = providersWith(c.GetExtensionProviders(), over.GetExtensionProviders())
	out.TrustDomainAliases = slices.Clone(c.GetTrustDomainAliases())
	for _, alias := range over.GetTrustDomainAliases() {
		if !slices.Contains(out.TrustDomainAliases, alias) {
			out.TrustDomainAliases = append(out.TrustDomainAliases, alias)
		}
	}
	return &out
}

// DecidedBy returns the configuration with the object that changed it, from what was before: it decides
// the fields whose values differ.
func (c *Config) DecidedBy(object config.Key, before *Config) *Config {
	out := *c
	out.Object, out.Fields = config.Key{}, nil
	c.ProtoReflect().Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		if !before.ProtoReflect().Has(field) || !value.Equal(before.ProtoReflect().Get(field)) {
			out.Object, out.Fields = object, append(out.Fields, string(field.Name()))
		}
		return true
	})
	slices.Sort(out.Fields)
	return &out
}

// Equal says whether two configurations say the same, by the same object.
func (c *Config) Equal(o *Config) bool {
	return c.Object == o.Object && slices.Equal(c.Fields, o.Fields) && c.Domain == o.Domain && c.HTTP3 == o.HTTP3 && c.HostConsent == o.HostConsent && proto.Equal(c.MeshConfig, o.MeshConfig)
}

// lay sets in a message the fields that are set in another of its type. They share their content.
func lay(into, over proto.Message) {
	over.ProtoReflect().Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		into.ProtoReflect().Set(field, value)
		return true
	})
}

func proxyConfigWith(c, over *meshv1alpha1.ProxyConfig) *meshv1alpha1.ProxyConfig {
	out := &meshv1alpha1.ProxyConfig{}
	lay(out, c)
	lay(out, over)
	if c.GetProxyHeaders() != nil && over.GetProxyHeaders() != nil {
		out.ProxyHeaders = &meshv1alpha1.ProxyConfig_ProxyHeaders{}
		lay(out.ProxyHeaders, c.GetProxyHeaders())
		lay(out.ProxyHeaders, over.GetProxyHeaders())
	}
	if len(c.GetProxyMetadata()) > 0 && len(over.GetProxyMetadata()) > 0 {
		out.ProxyMetadata = maps.Clone(c.GetProxyMetadata())
		maps.Copy(out.ProxyMetadata, over.GetProxyMetadata())
	}
	return out
}

func providersWith(c, over []*meshv1alpha1.MeshConfig_ExtensionProvider) []*meshv1alpha1.MeshConfig_ExtensionProvider {
	out := slices.Clone(c)
	for _, p := range over {
		same := func(o *meshv1alpha1.MeshConfig_ExtensionProvider) bool { return o.GetName() == p.GetName() }
		if i := slices.IndexFunc(out, same); i >= 0 {
			out[i] = p
		} else {
			out = append(out, p)
		}
	}
	return out
}
