package filter

import (
	"maps"
	"slices"

	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"

	"github.com/portolan-mesh/portolan/xds/envoy/accesslog"
	"github.com/portolan-mesh/portolan/xds/envoy/tracing"
	"github.com/portolan-mesh/portolan/xds/generate/providers"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/mesh/telemetry"
)

// requestLogs returns the access logs of a filter that sees requests, in the order of their providers,
// by default none. The metrics of requests come last: they are counted where these are logged.
func requestLogs(v *mesh.View, k Kind) []*accesslogv3.AccessLog {
	out := accessLogs(v, k, accesslog.Filter{})
	if m, ok := meterOf(v, k); ok {
		tags := connectionTags(v, k)
		maps.Copy(tags, requestTags)
		out = append(out, stats(m, requestMetrics, tags, accesslog.Filter{})...)
	}
	return out
}

// connectionLogs is requestLogs for a filter that sees connections. opened says whether the filter is
// to log a connection when it is connected upstream, too: only the metrics of opened ones take that.
func connectionLogs(v *mesh.View, k Kind) (out []*accesslogv3.AccessLog, opened bool) {
	m, ok := meterOf(v, k)
	if !ok {
		return accessLogs(v, k, accesslog.Filter{}), false
	}
	tags, end := connectionTags(v, k), accesslog.Filter{}
	begin := stats(m, openedMetrics, tags, accesslog.Filter{Event: accesslog.Opened})
	if len(begin) > 0 {
		end.Event = accesslog.Ended
	}
	return slices.Concat(accessLogs(v, k, end), stats(m, connectionMetrics, tags, end), begin), len(begin) > 0
}

// ListenerAccessLogs returns the access logs of a listener, none if the mesh disables them. They
// record connections that match no filter chain.
func ListenerAccessLogs(v *mesh.View, k Kind) []*accesslogv3.AccessLog {
	if v.Mesh(mesh.DisableEnvoyListenerLog).GetDisableEnvoyListenerLog() {
		return nil
	}
	return accessLogs(v, k, accesslog.Filter{NoRoute: true})
}

// direction says whose traffic a kind of listener has.
func (k Kind) direction() telemetry.Direction {
	if k == SidecarInbound {
		return telemetry.Server
	}
	return telemetry.Client
}

// logsOf returns which logs a kind of listener has, by what Telemetries and the mesh say together.
func logsOf(v *mesh.View, k Kind) []telemetry.Log {
	return telemetry.MergeLogging(v.LoggingLevels(k.direction()), v.Mesh(mesh.DefaultProviders).GetDefaultProviders().GetAccessLogging())
}

// accessLogs returns the logs of all providers, of what a filter lets through.
func accessLogs(v *mesh.View, k Kind, f accesslog.Filter) []*accesslogv3.AccessLog {
	var out []*accesslogv3.AccessLog
	for _, l := range logsOf(v, k) {
		f.CEL = l.Filter
		if l.Provider == telemetry.Own {
			out = append(out, ownLog(v, v.Mesh(mesh.AccessLogFile).GetAccessLogFile(), f)...)
		} else if log, _ := providerLog(v, l.Provider, f); log != nil {
			out = append(out, log...)
		}
	}
	return out
}

// ownLog returns the log that the mesh configuration describes itself, none without a path.
func ownLog(v *mesh.View, path string, f accesslog.Filter) []*accesslogv3.AccessLog {
	if path == "" {
		return nil
	}
	options := accesslog.Options{Path: path}
	format := v.Mesh(mesh.AccessLogFormat).GetAccessLogFormat()
	if v.Mesh(mesh.AccessLogEncoding).GetAccessLogEncoding() == meshv1alpha1.MeshConfig_JSON {
		options.JSON = accesslog.JSONFormat(format)
	} else {
		options.Format = format
	}
	return []*accesslogv3.AccessLog{accesslog.New(options, f)}
}

// providerLog returns the log of a provider. It returns none if there is no such provider, it makes
// no logs, or the proxy does not see its service, which is in the second result then.
func providerLog(v *mesh.View, name string, f accesslog.Filter) ([]*accesslogv3.AccessLog, providers.Service) {
	config := v.Mesh(mesh.ExtensionProviders)
	p := config.Provider(name)
	if file := p.GetEnvoyFileAccessLog(); file != nil {
		if file.GetLogFormat() == nil && !file.GetOmitEmptyValues() && isBuiltin(p) {
			return ownLog(v, file.GetPath(), f), nil // with the format of the mesh, as in Istio
		}
		return []*accesslogv3.AccessLog{accesslog.OfFile(file, f)}, nil
	}
	service := logService(p)
	if service == nil {
		return nil, nil
	}
	cluster, ok := providers.Cluster(v, service)
	if !ok {
		return nil, service
	}
	to := tracing.GRPC(tracing.Place{Host: providers.Host(service), Cluster: cluster}, nil, nil)
	switch {
	case p.GetEnvoyHttpAls() != nil:
		return []*accesslogv3.AccessLog{accesslog.ToService(p.GetEnvoyHttpAls(), to, f)}, nil
	case p.GetEnvoyTcpAls() != nil:
		return []*accesslogv3.AccessLog{accesslog.ToTCPService(p.GetEnvoyTcpAls(), to, f)}, nil
	}
	return []*accesslogv3.AccessLog{accesslog.ToCollector(p.GetEnvoyOtelAls(), to, f)}, nil
}

// ReportsTo returns the clusters to which a listener of a kind sends logs, and spans if it takes
// requests.
func ReportsTo(v *mesh.View, k Kind, requests bool) []string {
	var out []string
	add := func(s providers.Service) {
		if s == nil {
			return
		}
		if cluster, ok := providers.Cluster(v, s); ok {
			out = append(out, cluster)
		}
	}
	for _, l := range logsOf(v, k) {
		add(logService(v.Mesh(mesh.ExtensionProviders).Provider(l.Provider)))
	}
	if trace := traceOf(v, k); trace != nil && requests {
		o, ok, _ := collector(v, trace.Provider)
		if ok {
			out = append(out, o.Collector.Cluster)
		}
		if ok && o.Sampler.Cluster != "" {
			out = append(out, o.Sampler.Cluster)
		}
	}
	return out
}

// isBuiltin says whether a provider is Istio's own for logs.
func isBuiltin(p *meshv1alpha1.MeshConfig_ExtensionProvider) bool { return p.GetName() == "envoy" }

// logService returns the service to which a provider of logs sends them, nil for none.
func logService(p *meshv1alpha1.MeshConfig_ExtensionProvider) providers.Service {
	switch {
	case p.GetEnvoyHttpAls() != nil:
		return p.GetEnvoyHttpAls()
	case p.GetEnvoyTcpAls() != nil:
		return p.GetEnvoyTcpAls()
	case p.GetEnvoyOtelAls() != nil:
		return p.GetEnvoyOtelAls()
	}
	return nil
}

// Fault says what is wrong with a provider for a job.
type Fault int

// The faults.
const (
	None    Fault = iota
	Missing       // the mesh has no provider of the name
	Unfit         // it does not do the job on stock Envoy
	Unseen        // the proxy does not see its service and port
)

// LogFault says what is wrong with a provider of logs for a proxy.
func LogFault(v *mesh.View, name string) Fault {
	log, unseen := providerLog(v, name, accesslog.Filter{})
	return faultOf(v, name, log != nil, unseen)
}

// TraceFault says what is wrong with a provider of traces for a proxy.
func TraceFault(v *mesh.View, name string) Fault {
	_, ok, unseen := collector(v, name)
	return faultOf(v, name, ok, unseen)
}

// MetricFault says what is wrong with a provider of metrics for a proxy.
func MetricFault(v *mesh.View, name string) Fault {
	return faultOf(v, name, v.Mesh(mesh.ExtensionProviders).Provider(name).GetPrometheus() != nil, nil)
}

func faultOf(v *mesh.View, name string, ok bool, unseen providers.Service) Fault {
	switch {
	case ok:
		return None
	case v.Mesh(mesh.ExtensionProviders).Provider(name) == nil:
		return Missing
	case unseen != nil:
		return Unseen
	}
	return Unfit
}
