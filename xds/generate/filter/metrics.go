package filter

import (
	"maps"
	"slices"

	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
	telemetryv1 "istio.io/api/telemetry/v1alpha1"

	"github.com/portolan-mesh/portolan/xds/envoy/accesslog"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/mesh/telemetry"
)

// standard is a standard metric of Istio that stock Envoy can make where it logs.
type standard struct {
	id        telemetryv1.MetricSelector_IstioMetric
	name      string
	value     string // a command; empty counts
	histogram accesslog.Unit
}

var (
	requestMetrics = []standard{
		{telemetryv1.MetricSelector_REQUEST_COUNT, "requests_total", "", accesslog.Counter},
		{telemetryv1.MetricSelector_REQUEST_DURATION, "request_duration_milliseconds", "%DURATION%", accesslog.Milliseconds},
		{telemetryv1.MetricSelector_REQUEST_SIZE, "request_bytes", "%BYTES_RECEIVED%", accesslog.Bytes},
		{telemetryv1.MetricSelector_RESPONSE_SIZE, "response_bytes", "%BYTES_SENT%", accesslog.Bytes},
	}
	openedMetrics     = []standard{{telemetryv1.MetricSelector_TCP_OPENED_CONNECTIONS, "tcp_connections_opened_total", "", accesslog.Counter}}
	connectionMetrics = []standard{
		{telemetryv1.MetricSelector_TCP_CLOSED_CONNECTIONS, "tcp_connections_closed_total", "", accesslog.Counter},
		{telemetryv1.MetricSelector_TCP_SENT_BYTES, "tcp_sent_bytes_total", "%BYTES_SENT%", accesslog.Counter},
		{telemetryv1.MetricSelector_TCP_RECEIVED_BYTES, "tcp_received_bytes_total", "%BYTES_RECEIVED%", accesslog.Counter},
	}
)

// meterOf returns the provider prometheus that gets metrics, false if there is none. Several providers
// of the kind read the same metrics, so the first alone counts.
func meterOf(v *mesh.View, k Kind) (telemetry.Meter, bool) {
	defaults := v.Mesh(mesh.DefaultProviders).GetDefaultProviders().GetMetrics()
	for _, meter := range telemetry.MergeMetrics(v.MetricsLevels(k.direction()), defaults) {
		if v.Mesh(mesh.ExtensionProviders).Provider(meter.Provider).GetPrometheus() != nil {
			return meter, true
		}
	}
	return telemetry.Meter{}, false
}

// stats returns the log that makes some metrics of what a filter lets through, none if all of them are
// disabled.
func stats(m telemetry.Meter, all []standard, tags map[string]string, f accesslog.Filter) []*accesslogv3.AccessLog {
	var out []accesslog.Stat
	for _, s := range all {
		if changed := m.Metrics[s.id]; !changed.Disabled {
			out = append(out, accesslog.Stat{Name: s.name, Value: s.value, Unit: s.histogram, Tags: tagsOf(tags, changed.Tags)})
		}
	}
	if len(out) == 0 {
		return nil
	}
	return []*accesslogv3.AccessLog{accesslog.Stats("istio", out, f)}
}

// tagsOf returns tags with changes, in the order of their names.
func tagsOf(tags map[string]string, changed map[string]*telemetryv1.MetricsOverrides_TagOverride) []accesslog.Tag {
	tags = maps.Clone(tags)
	for name, o := range changed {
		if o.GetOperation() == telemetryv1.MetricsOverrides_TagOverride_REMOVE {
			delete(tags, name)
		} else {
			tags[name] = celCommand(o.GetValue())
		}
	}
	var out []accesslog.Tag
	for _, name := range slices.Sorted(maps.Keys(tags)) {
		out = append(out, accesslog.Tag{Name: name, Value: tags[name]})
	}
	return out
}

// requestTags are the tags of requests beside those of connections.
var requestTags = map[string]string{
	"request_protocol":     celCommand(`"content-type" in request.headers && request.headers["content-type"].startsWith("application/grpc") ? "grpc" : "http"`),
	"response_code":        "%RESPONSE_CODE%",
	"grpc_response_status": "%GRPC_STATUS_NUMBER%",
}

// connectionTags are the tags of connections. The proxy knows its own side from its node, and that of
// the endpoint from the metadata of clusters and endpoints: stock Envoy has no more.
func connectionTags(v *mesh.View, k Kind) map[string]string {
	own, reporter := "source_", "source"
	if k == SidecarInbound {
		own, reporter = "destination_", "destination"
	}
	out := map[string]string{
		"reporter":                      reporter,
		"request_protocol":              "tcp",
		"response_flags":                "%RESPONSE_FLAGS%",
		own + "app":                     celCommand(nodeLabel(unknown, "app")),
		own + "version":                 celCommand(nodeLabel(unknown, "version")),
		own + "workload":                celCommand(nodeField("WORKLOAD_NAME", unknown)),
		own + "workload_namespace":      ownNamespace(v),
		own + "canonical_service":       celCommand(nodeLabel(unknown, canonicalNames...)),
		own + "canonical_revision":      celCommand(nodeLabel(`"latest"`, canonicalRevisions...)),
		own + "cluster":                 celCommand(nodeField("CLUSTER_ID", unknown)),
		"destination_service":           celCommand(clusterService("host")),
		"destination_service_name":      celCommand(clusterService("name")),
		"destination_service_namespace": celCommand(clusterService("namespace")),
	}
	if k == SidecarInbound {
		out["connection_security_policy"] = celCommand(`connection.mtls ? "mutual_tls" : "none"`)
		out["source_principal"], out["destination_principal"] = "%DOWNSTREAM_PEER_URI_SAN%", "%DOWNSTREAM_LOCAL_URI_SAN%"
		return out
	}
	out["connection_security_policy"] = "unknown"
	out["source_principal"], out["destination_principal"] = "%UPSTREAM_LOCAL_URI_SAN%", "%UPSTREAM_PEER_URI_SAN%"
	for i, name := range []string{"workload", "workload_namespace", "canonical_service", "canonical_revision", "cluster"} {
		out["destination_"+name] = celCommand(endpointPart(i + 1))
	}
	return out
}

// clusterService is the expression of a field of the service that a request goes to.
func clusterService(field string) string {
	const metadata = `xds.cluster_metadata.filter_metadata`
	return `"istio" in ` + metadata + ` && "services" in ` + metadata + `["istio"] && size(` + metadata + `["istio"]["services"]) > 0` +
		` ? ` + metadata + `["istio"]["services"][0]["` + field + `"] : ` + unknown
}

// endpointPart is the expression of a part of what an endpoint says of its workload, from 1 on:
// "name;namespace;canonical service;revision;cluster".
func endpointPart(n int) string {
	const metadata = `xds.upstream_host_metadata.filter_metadata`
	return `"istio" in ` + metadata + ` && "workload" in ` + metadata + `["istio"]` +
		` ? re.extract(` + metadata + `["istio"]["workload"], "^([^;]*);([^;]*);([^;]*);([^;]*);([^;]*)$", r"\` + string(rune('0'+n)) + `") : ` + unknown
}
