package mesh

import (
	"fmt"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"
	"sigs.k8s.io/yaml"
)

// Config is the mesh configuration: an input row like any other. It is never
// modified.
type Config struct {
	*meshv1alpha1.MeshConfig
	// Domain is the DNS suffix of short host names.
	Domain string
}

// DefaultDomain is the DNS suffix of short host names.
const DefaultDomain = "cluster.local"

// DefaultConfig has Istio's defaults (Istio: pkg/config/mesh/mesh.go).
func DefaultConfig() *Config {
	return &Config{
		Domain: DefaultDomain,
		MeshConfig: &meshv1alpha1.MeshConfig{
			ConnectTimeout:                 durationpb.New(10 * time.Second),
			RootNamespace:                  "istio-system",
			TrustDomain:                    "cluster.local",
			AccessLogEncoding:              meshv1alpha1.MeshConfig_TEXT,
			OutboundTrafficPolicy:          &meshv1alpha1.MeshConfig_OutboundTrafficPolicy{Mode: meshv1alpha1.MeshConfig_OutboundTrafficPolicy_ALLOW_ANY},
			DefaultServiceExportTo:         []string{"*"},
			DefaultVirtualServiceExportTo:  []string{"*"},
			DefaultDestinationRuleExportTo: []string{"*"},
			ProxyListenPort:                15001,
			ProxyInboundListenPort:         15006,
			DefaultConfig:                  &meshv1alpha1.ProxyConfig{},
		},
	}
}

// served are the fields of MeshConfig that have an effect.
var served = map[protoreflect.Name]bool{
	"connect_timeout": true, "root_namespace": true, "trust_domain": true, "access_log_file": true,
	"outbound_traffic_policy": true, "default_service_export_to": true, "default_virtual_service_export_to": true,
	"default_destination_rule_export_to": true, "access_log_format": true, "access_log_encoding": true,
}

// ParseConfig reads a MeshConfig in YAML, strictly, and lays it over the
// defaults. The warnings name the fields that are set and not served yet.
func ParseConfig(document []byte) (c *Config, warnings []string, err error) {
	asJSON, err := yaml.YAMLToJSONStrict(document)
	if err != nil {
		return nil, nil, fmt.Errorf("mesh config: %w", err)
	}
	over := &meshv1alpha1.MeshConfig{}
	if string(asJSON) != "null" {
		if err := protojson.Unmarshal(asJSON, over); err != nil {
			return nil, nil, fmt.Errorf("mesh config: %w", err)
		}
	}
	c = DefaultConfig()
	into := c.MeshConfig.ProtoReflect()
	over.ProtoReflect().Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		if !served[field.Name()] {
			warnings = append(warnings, fmt.Sprintf("mesh config: %s is not served yet and has no effect", field.JSONName()))
		}
		into.Set(field, value)
		return true
	})
	if over.GetConnectTimeout() != nil && over.GetConnectTimeout().AsDuration() < time.Millisecond {
		return nil, nil, fmt.Errorf("mesh config: connectTimeout: must be at least 1ms")
	}
	if c.OutboundTrafficPolicy.GetMode() == meshv1alpha1.MeshConfig_OutboundTrafficPolicy_ALLOW_ANY ||
		c.OutboundTrafficPolicy.GetMode() == meshv1alpha1.MeshConfig_OutboundTrafficPolicy_REGISTRY_ONLY {
		return c, warnings, nil
	}
	return nil, nil, fmt.Errorf("mesh config: outboundTrafficPolicy.mode: use ALLOW_ANY or REGISTRY_ONLY")
}

// AllowAny says whether traffic to hosts outside the registry passes through.
func (c *Config) AllowAny() bool {
	return c.GetOutboundTrafficPolicy().GetMode() == meshv1alpha1.MeshConfig_OutboundTrafficPolicy_ALLOW_ANY
}
