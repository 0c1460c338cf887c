package security

import (
	"fmt"
	"slices"

	meshv1alpha1 "istio.io/api/mesh/v1alpha1"
	telemetryv1 "istio.io/api/telemetry/v1alpha1"

	namespaces "github.com/portolan-mesh/portolan/cache/kube/selection"
	"github.com/portolan-mesh/portolan/discovery/kube/remote"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/xds/envoy/accesslog"
	"github.com/portolan-mesh/portolan/xds/generate/filter"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/verdict"
)

// MeshConfig judges a MeshConfig: outside the root namespace it has no effect, its default providers
// must be some that take what they get, a format must fit the encoding, and there must be a cluster for
// its discoverySelectors.
func MeshConfig(j *verdict.Judge, object *config.Config) {
	root := j.Mesh().MeshConfig().GetRootNamespace()
	if fault := schema.MeshConfigElsewhere(object.Key(), root); fault != nil {
		j.Add(verdict.Verdict{
			Code:    verdict.MeshConfigUnused,
			Message: "is in namespace " + object.Namespace + ", and the MeshConfig of the mesh is in " + root + ": it has no effect",
			Remedy:  "apply it there with -n " + root + ", and delete it here",
		})
		return
	}
	spec := object.Spec.(*meshv1alpha1.MeshConfig)
	judgeSelectors(j, spec.GetDiscoverySelectors(), root)
	v := j.View(root)
	for _, d := range []struct {
		field, what, kinds string
		names              []string
		fault              func(*mesh.View, string) filter.Fault
	}{
		{"accessLogging", "access logs", logKinds, spec.GetDefaultProviders().GetAccessLogging(), filter.LogFault},
		{"metrics", "metrics", metricKinds, spec.GetDefaultProviders().GetMetrics(), filter.MetricFault},
		{"tracing", "traces", traceKinds, spec.GetDefaultProviders().GetTracing(), filter.TraceFault},
	} {
		for i, name := range d.names {
			if code, message, remedy := providerFault(d.fault(v, name), name, d.what, d.kinds, "namespace "+root); code != "" {
				j.Add(verdict.Verdict{Code: code, Field: verdict.At("spec.defaultProviders."+d.field, i), Message: message, Remedy: remedy})
			}
		}
	}
	encoding := v.Mesh(mesh.AccessLogEncoding).GetAccessLogEncoding()
	format := v.Mesh(mesh.AccessLogFormat).GetAccessLogFormat()
	own := spec.GetAccessLogFormat() != "" || spec.GetAccessLogEncoding() != 0
	if own && encoding == meshv1alpha1.MeshConfig_JSON && !accesslog.IsJSON(format) {
		j.Add(verdict.Verdict{
			Code: verdict.LogFormatUnfit, Field: "spec.accessLogFormat",
			Message: "is text, and accessLogEncoding of the mesh is JSON: proxies use Istio's own fields",
			Remedy:  `write a JSON object, such as {"path": "%REQ(:PATH)%"}, or set accessLogEncoding to TEXT`,
		})
	}
	if own && v.Mesh(mesh.AccessLogFile).GetAccessLogFile() == "" && !logsByEnvoy(j, root) {
		field := "spec.accessLogFormat"
		if spec.GetAccessLogFormat() == "" {
			field = "spec.accessLogEncoding"
		}
		j.Add(verdict.Verdict{
			Code: verdict.LogUnwritten, Field: field,
			Message: "is for accessLogFile, which is not set, and for the provider envoy, which neither defaultProviders nor a Telemetry of " + root + " names",
			Remedy:  "set accessLogFile, such as /dev/stdout, or name the provider envoy",
		})
	}
}

// judgeSelectors judges the selectors of namespaces of clusters.
func judgeSelectors(j *verdict.Judge, selectors []*meshv1alpha1.LabelSelector, root string) {
	const field = "spec.discoverySelectors"
	if i, err := namespaces.Unreadable(selectors); err != nil {
		j.Add(verdict.Verdict{
			Code: verdict.SelectorsUnreadable, Field: verdict.At(field, i),
			Message: "cannot be read, and the last selectors that could be still count: " + err.Error(),
			Remedy:  "mend it with portolan edit: the config API names what is wrong with a selector",
		})
	}
	if len(selectors) == 0 || j.Facts().Selects {
		return
	}
	for secret := range j.Objects(schema.Secret, root) {
		if len(remote.Names(secret)) > 0 {
			return
		}
	}
	j.Add(verdict.Verdict{
		Code: verdict.SelectorsUnused, Field: field,
		Message: "has no effect: the server takes neither services nor objects from a cluster",
		Remedy:  "name a cluster with --services-kube or --config-kube, or by a Secret with the label " + remote.Label + ", or remove the field",
	})
}

// logsByEnvoy says whether the provider envoy is a default one, or named by a Telemetry for the mesh. It
// writes in the format of the mesh.
func logsByEnvoy(j *verdict.Judge, root string) bool {
	const name = "envoy"
	if slices.Contains(j.View(root).Mesh(mesh.DefaultProviders).GetDefaultProviders().GetAccessLogging(), name) {
		return true
	}
	for o := range j.Objects(schema.Telemetry, root) {
		for _, e := range o.Spec.(*telemetryv1.Telemetry).GetAccessLogging() {
			if slices.ContainsFunc(e.GetProviders(), func(p *telemetryv1.ProviderRef) bool { return p.GetName() == name }) {
				return true
			}
		}
	}
	return false
}

// The kinds of providers that take what proxies report.
const (
	logKinds    = "envoyFileAccessLog, envoyHttpAls, envoyTcpAls or envoyOtelAls"
	metricKinds = "prometheus"
	traceKinds  = "zipkin, opentelemetry, datadog or skywalking"
)

// providerFault says what is wrong with a provider; no code for nothing. unseen are those who do not see
// its service.
func providerFault(f filter.Fault, name, what, kinds string, unseen any) (code verdict.Code, message, remedy string) {
	switch f {
	case filter.Missing:
		return verdict.ReporterMissing, fmt.Sprintf("%q is no provider of the mesh: it gets no %s", name, what),
			"add it to extensionProviders of the mesh configuration, or mend the name"
	case filter.Unfit:
		return verdict.ReporterUnfit, fmt.Sprintf("%q takes no %s from proxies: Envoy has nothing that sends them to a provider of its kind", name, what),
			"name one of the kinds " + kinds
	case filter.Unseen:
		return verdict.ReporterMissing, fmt.Sprintf("the service of %q is not seen by %s: it gets no %s from there", name, unseen, what),
			"add a ServiceEntry with its host and port, or let these proxies see it by its exportTo and their Sidecar"
	}
	return "", "", ""
}
