package filter

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	metadatav3 "github.com/envoyproxy/go-control-plane/envoy/type/metadata/v3"
	tagsv3 "github.com/envoyproxy/go-control-plane/envoy/type/tracing/v3"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"
	telemetryv1 "istio.io/api/telemetry/v1alpha1"

	"github.com/portolan-mesh/portolan/xds/envoy/tracing"
	"github.com/portolan-mesh/portolan/xds/generate/policy"
	"github.com/portolan-mesh/portolan/xds/generate/providers"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/mesh/telemetry"
)

// usualSampling is the percentage of requests that are traced if nothing says it, and usualService the
// name of a service that no node gives. (Istio: PILOT_TRACE_SAMPLING, the service cluster of istio-agent.)
const (
	usualSampling = 1
	usualService  = "istio-proxy"
)

// traceOf returns how requests of a kind of listener are traced, by what Telemetries and the mesh say
// together; nil if they are not.
func traceOf(v *mesh.View, k Kind) *telemetry.Trace {
	return telemetry.MergeTracing(v.TracingLevels(k.direction()), v.Mesh(mesh.DefaultProviders).GetDefaultProviders().GetTracing())
}

// traces returns how the requests of a kind of listener are traced, nil if they are not. ids says
// whether the id of a request decides whether it is traced, as in Envoy by default.
func traces(v *mesh.View, k Kind) (out *hcmv3.HttpConnectionManager_Tracing, ids bool) {
	trace := traceOf(v, k)
	if trace == nil {
		return nil, true
	}
	o, ok, _ := collector(v, trace.Provider)
	if !ok {
		return nil, true
	}
	config := v.Mesh(mesh.DefaultProxyConfig).GetDefaultConfig().GetTracing()
	o.Sampling = cmp.Or(config.GetSampling(), usualSampling)
	if trace.Sampling != nil {
		o.Sampling = *trace.Sampling
	}
	o.MaxPathLength, o.Isolated, o.Independent = config.GetMaxPathTagLength(), trace.Isolated, k == Gateway
	if trace.IstioTags {
		o.Tags = workloadTags(v)
		if k.guarded() {
			o.Tags = append(o.Tags, dryRunTags()...)
		}
	}
	if trace.Tags != nil {
		o.Tags = append(o.Tags, customTags(trace.Tags)...)
	} else {
		o.Tags = append(o.Tags, configTags(config.GetCustomTags())...)
	}
	slices.SortStableFunc(o.Tags, func(a, b *tagsv3.CustomTag) int { return cmp.Compare(a.GetTag(), b.GetTag()) })
	return tracing.New(o), trace.RequestID
}

// collector returns where a provider reports spans. It is false if there is no such provider, it
// takes no spans from stock Envoy, or the proxy does not see its service, which is in the third result then.
func collector(v *mesh.View, name string) (o tracing.Options, ok bool, unseen providers.Service) {
	o.Provider = v.Mesh(mesh.ExtensionProviders).Provider(name)
	var service, sampler providers.Service
	switch p := o.Provider; {
	case p.GetZipkin() != nil:
		service = p.GetZipkin()
	case p.GetDatadog() != nil:
		service, o.Service = p.GetDatadog(), cmp.Or(v.ServiceName(), usualService)
	case p.GetSkywalking() != nil:
		service = p.GetSkywalking()
	case p.GetOpentelemetry() != nil:
		service, o.Service = p.GetOpentelemetry(), cmp.Or(v.ServiceName(), usualService)
		if own := p.GetOpentelemetry().GetDynatraceSampler().GetHttpService(); own != nil {
			sampler = own
		}
	default:
		return o, false, nil
	}
	cluster, ok := providers.Cluster(v, service)
	if !ok {
		return o, false, service
	}
	o.Collector = tracing.Place{Host: providers.Host(service), Cluster: cluster}
	if sampler != nil {
		if cluster, ok = providers.Cluster(v, sampler); !ok {
			return o, false, sampler
		}
		o.Sampler = tracing.Place{Host: providers.Host(sampler), Cluster: cluster}
	}
	return o, true, nil
}

// workloadTags are Istio's tags about the workload of a proxy. What differs from proxy to proxy each
// takes from its own node, so that they share their listeners. (Istio: buildServiceTags.)
func workloadTags(v *mesh.View) []*tagsv3.CustomTag {
	return []*tagsv3.CustomTag{
		valueTag("istio.canonical_revision", celCommand(nodeLabel(`"latest"`, canonicalRevisions...))),
		valueTag("istio.canonical_service", celCommand(nodeLabel(unknown, canonicalNames...))),
		valueTag("istio.cluster_id", celCommand(nodeField("CLUSTER_ID", unknown))),
		valueTag("istio.mesh_id", celCommand(nodeField("MESH_ID", unknown))),
		literalTag("istio.namespace", ownNamespace(v)),
	}
}

// dryRunTags are Istio's tags about what policies of a dry run would have said of a request. A request
// that none judges has none of them. (Istio: optionalPolicyTags.)
func dryRunTags() []*tagsv3.CustomTag {
	var out []*tagsv3.CustomTag
	for _, of := range []struct{ action, prefix string }{{"allow", policy.DryRunAllowPrefix}, {"deny", policy.DryRunDenyPrefix}} {
		out = append(out,
			policyTag("istio.authorization.dry_run."+of.action+"_policy.name", of.prefix+"shadow_effective_policy_id"),
			policyTag("istio.authorization.dry_run."+of.action+"_policy.result", of.prefix+"shadow_engine_result"))
	}
	return out
}

// policyTag is a tag with what the filters of policies have noted about a request under a key.
func policyTag(name, key string) *tagsv3.CustomTag {
	return &tagsv3.CustomTag{Tag: name, Type: &tagsv3.CustomTag_Metadata_{Metadata: &tagsv3.CustomTag_Metadata{
		Kind: &metadatav3.MetadataKind{Kind: &metadatav3.MetadataKind_Request_{Request: &metadatav3.MetadataKind_Request{}}},
		MetadataKey: &metadatav3.MetadataKey{Key: "envoy.filters.http.rbac", Path: []*metadatav3.MetadataKey_PathSegment{
			{Segment: &metadatav3.MetadataKey_PathSegment_Key{Key: key}},
		}},
	}}}
}

// ownNamespace is the namespace of the proxy.
func ownNamespace(v *mesh.View) string {
	namespace := v.Class().Namespace
	v.InNamespace(namespace) // recorded, since proxies of others have another
	return namespace
}

// The labels that name a workload's canonical service and revision, the first that is set. (Istio:
// labels.CanonicalService.)
var (
	canonicalNames     = []string{"service.istio.io/canonical-name", "app.kubernetes.io/name", "app"}
	canonicalRevisions = []string{"service.istio.io/canonical-revision", "app.kubernetes.io/version", "version"}
)

// unknown is the expression of what nobody knows.
const unknown = `"unknown"`

// celCommand is the command that writes the value of an expression.
func celCommand(expression string) string { return "%CEL(" + expression + ")%" }

// nodeField is the expression of a field of the node's metadata, or another.
func nodeField(name, otherwise string) string {
	return `"` + name + `" in xds.node.metadata ? xds.node.metadata["` + name + `"] : ` + otherwise
}

// nodeLabel is the expression of the first of some labels that the node has, or another.
func nodeLabel(otherwise string, labels ...string) string {
	var out strings.Builder
	for _, l := range labels {
		out.WriteString(`"LABELS" in xds.node.metadata && "` + l + `" in xds.node.metadata["LABELS"] ? xds.node.metadata["LABELS"]["` + l + `"] : `)
	}
	return out.String() + otherwise
}

func valueTag(name, format string) *tagsv3.CustomTag {
	return &tagsv3.CustomTag{Tag: name, Type: &tagsv3.CustomTag_Value{Value: format}}
}

func literalTag(name, value string) *tagsv3.CustomTag {
	return &tagsv3.CustomTag{Tag: name, Type: &tagsv3.CustomTag_Literal_{Literal: &tagsv3.CustomTag_Literal{Value: value}}}
}

func environmentTag(name, variable, otherwise string) *tagsv3.CustomTag {
	return &tagsv3.CustomTag{Tag: name, Type: &tagsv3.CustomTag_Environment_{Environment: &tagsv3.CustomTag_Environment{Name: variable, DefaultValue: otherwise}}}
}

func headerTag(name, header, otherwise string) *tagsv3.CustomTag {
	return &tagsv3.CustomTag{Tag: name, Type: &tagsv3.CustomTag_RequestHeader{RequestHeader: &tagsv3.CustomTag_Header{Name: header, DefaultValue: otherwise}}}
}

// customTags are the tags of a Telemetry.
func customTags(tags map[string]*telemetryv1.Tracing_CustomTag) []*tagsv3.CustomTag {
	var out []*tagsv3.CustomTag
	for _, name := range slices.Sorted(maps.Keys(tags)) {
		switch t := tags[name].GetType().(type) {
		case *telemetryv1.Tracing_CustomTag_Literal:
			out = append(out, literalTag(name, t.Literal.GetValue()))
		case *telemetryv1.Tracing_CustomTag_Environment:
			out = append(out, environmentTag(name, t.Environment.GetName(), t.Environment.GetDefaultValue()))
		case *telemetryv1.Tracing_CustomTag_Header:
			out = append(out, headerTag(name, t.Header.GetName(), t.Header.GetDefaultValue()))
		case *telemetryv1.Tracing_CustomTag_Formatter:
			out = append(out, valueTag(name, t.Formatter.GetValue()))
		}
	}
	return out
}

// configTags are the tags of the mesh configuration.
func configTags(tags map[string]*meshv1alpha1.Tracing_CustomTag) []*tagsv3.CustomTag {
	var out []*tagsv3.CustomTag
	for _, name := range slices.Sorted(maps.Keys(tags)) {
		switch t := tags[name].GetType().(type) {
		case *meshv1alpha1.Tracing_CustomTag_Literal:
			out = append(out, literalTag(name, t.Literal.GetValue()))
		case *meshv1alpha1.Tracing_CustomTag_Environment:
			out = append(out, environmentTag(name, t.Environment.GetName(), t.Environment.GetDefaultValue()))
		case *meshv1alpha1.Tracing_CustomTag_Header:
			out = append(out, headerTag(name, t.Header.GetName(), t.Header.GetDefaultValue()))
		}
	}
	return out
}
