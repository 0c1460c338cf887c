package mesh

import (
	"slices"
	"strings"

	telemetryv1 "istio.io/api/telemetry/v1alpha1"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/labels"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/xds/mesh/class"
	"github.com/portolan-mesh/portolan/xds/mesh/policy"
	"github.com/portolan-mesh/portolan/xds/mesh/telemetry"
)

// telemetries holds the Telemetries by config path. A query is for one section and direction, so a
// changed section concerns its own readers alone.
type telemetries struct{ tableOf[*telemetry.Telemetry] }

var telemetryRows = telemetries{tableOf[*telemetry.Telemetry]{Telemetries}}

func (t telemetries) follow(from, to *PushContext) {
	eachObject(from, to, telemetryPath, func(c pmap.Change[*config.Config]) {
		var row *telemetry.Telemetry
		if c.HasNew {
			row = telemetry.New(c.New, t.rowsOf(to).Value(c.Key))
		}
		t.put(to, c.Key, row, c.HasNew)
	})
}

// The sections, as arguments of queries. The direction follows.
const (
	loggingSection = "logging/"
	tracingSection = "tracing/"
	metricsSection = "metrics/"
)

var directionArgs = [...]string{telemetry.Client: "client", telemetry.Server: "server"}

func (t telemetries) answer(v *View, path, args string) any {
	row, direction := t.rowsOf(v.push).Value(path), telemetry.Client
	if strings.HasSuffix(args, directionArgs[telemetry.Server]) {
		direction = telemetry.Server
	}
	switch section, _, _ := strings.Cut(args, "/"); section + "/" {
	case loggingSection:
		return row.Logging(direction)
	case tracingSection:
		return row.Tracing(direction)
	default:
		return row.Metrics(direction)
	}
}

// LoggingLevels returns the sections accessLogging that count for the proxy, the widest first.
func (v *View) LoggingLevels(d telemetry.Direction) []*telemetry.Logging {
	return levels[*telemetry.Logging](v, loggingSection+directionArgs[d])
}

// TracingLevels returns the sections tracing that count for the proxy, the widest first.
func (v *View) TracingLevels(d telemetry.Direction) []*telemetry.Tracing {
	return levels[*telemetry.Tracing](v, tracingSection+directionArgs[d])
}

// MetricsLevels returns the sections metrics that count for the proxy, the widest first.
func (v *View) MetricsLevels(d telemetry.Direction) []*telemetry.Metrics {
	return levels[*telemetry.Metrics](v, metricsSection+directionArgs[d])
}

// levels asks for a section of each Telemetry that attaches to the proxy, and leaves out those that
// have none.
func levels[P comparable](v *View, args string) []P {
	var out []P
	var none P
	for path := range v.ask(Self, selfTelemetries, "").(class.Attached).Names(class.Telemetry) {
		if part := v.ask(Telemetries, path, args).(P); part != none {
			out = append(out, part)
		}
	}
	return out
}

// ServiceName is the name of the proxy's service in traces; empty if the mesh has no provider that
// needs it, or the proxy does not say.
func (v *View) ServiceName() string { return v.ask(Self, selfServiceName, "").(string) }

// followTelemetries follows the selectors of Telemetries.
func (t attachmentTable) followTelemetries(from, to *PushContext) {
	t.followObjects(from, to, class.Telemetry, telemetryPath, func(c *config.Config) labels.Instance {
		return c.Spec.(*telemetryv1.Telemetry).GetSelector().GetMatchLabels()
	})
}

// telemetriesFor chooses the Telemetries that apply to a proxy: the oldest of the root namespace, the
// oldest of its own namespace, both without a selector and a target, and the oldest of its own
// namespace that selects or targets it. gRPC programs have none. (Istio: applicableTelemetries.)
func (p *PushContext) telemetriesFor(who attachedTo) []string {
	if who.Type == discovery.Proxyless {
		return nil
	}
	root, w := p.mesh.GetRootNamespace(), policyWorkload(who.Proxy, who.workload, who.attached)
	scope := func(a *attachment) *policy.Policy {
		return telemetryRows.rowsOf(p).Value(a.object.Key().Path()).Scope
	}
	wide := func(a *attachment) bool { return !scope(a).Narrow() }
	selects := func(a *attachment) bool { return scope(a).Narrow() && scope(a).Selects(w, root) }
	var out []string
	for _, of := range []struct {
		namespace string
		meets     func(*attachment) bool
	}{{root, wide}, {who.Namespace, wide}, {who.Namespace, selects}} {
		if best := p.attachmentsIn(class.Telemetry, of.namespace).oldest(of.meets); best != nil {
			out = append(out, best.Key().Path())
		}
	}
	return slices.Compact(out) // a proxy of the root namespace has one level less
}
