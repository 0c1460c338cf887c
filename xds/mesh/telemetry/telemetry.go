package telemetry

import (
	"slices"

	"google.golang.org/protobuf/proto"
	telemetryv1 "istio.io/api/telemetry/v1alpha1"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/xds/mesh/policy"
)

// Direction says which traffic of a proxy is meant.
type Direction int

// The directions. What comes into a workload is of the server; all else, a gateway's too, is of the
// client.
const (
	Client Direction = iota
	Server
	directions
)

// matches says whether a mode is for the direction.
func (d Direction) matches(m telemetryv1.WorkloadMode) bool {
	switch m {
	case telemetryv1.WorkloadMode_CLIENT:
		return d == Client
	case telemetryv1.WorkloadMode_SERVER:
		return d == Server
	}
	return true
}

// A Part is one section of one Telemetry: the entries that are for a direction. It is never
// modified. It is nil if the section is empty, and has no entries if all are for the other direction.
type Part[E proto.Message] struct {
	Object  config.Key
	Entries []E
}

// The sections.
type (
	Logging = Part[*telemetryv1.AccessLogging]
	Tracing = Part[*telemetryv1.Tracing]
	Metrics = Part[*telemetryv1.Metrics]
)

// Telemetry is one object, by sections. It is never modified.
type Telemetry struct {
	Config *config.Config
	// Scope says for which workloads it is.
	Scope   *policy.Policy
	logging [directions]*Logging
	tracing [directions]*Tracing
	metrics [directions]*Metrics
}

// New reads a Telemetry. It shares with an earlier version of it, or nil, each Part that is equal, so
// that readers of a section compare by ==.
func New(c *config.Config, last *Telemetry) *Telemetry {
	t, spec := &Telemetry{Config: c, Scope: policy.NewPolicy(c)}, c.Spec.(*telemetryv1.Telemetry)
	if last == nil {
		last = &Telemetry{}
	}
	for d := range directions {
		t.logging[d] = part(c, last.logging[d], spec.GetAccessLogging(), func(l *telemetryv1.AccessLogging) (*telemetryv1.AccessLogging, bool) {
			return l, d.matches(l.GetMatch().GetMode())
		})
		t.tracing[d] = part(c, last.tracing[d], spec.GetTracing(), func(t *telemetryv1.Tracing) (*telemetryv1.Tracing, bool) {
			return t, d.matches(t.GetMatch().GetMode())
		})
		t.metrics[d] = part(c, last.metrics[d], spec.GetMetrics(), func(m *telemetryv1.Metrics) (*telemetryv1.Metrics, bool) {
			out := &telemetryv1.Metrics{Providers: m.GetProviders(), ReportingInterval: m.GetReportingInterval()}
			for _, o := range m.GetOverrides() {
				if d.matches(o.GetMatch().GetMode()) {
					out.Overrides = append(out.Overrides, o)
				}
			}
			return out, true
		})
	}
	return t
}

// part returns the part of a section that is for a direction.
func part[E proto.Message](c *config.Config, last *Part[E], section []E, of func(E) (E, bool)) *Part[E] {
	if len(section) == 0 {
		return nil
	}
	out := &Part[E]{Object: c.Key()}
	for _, e := range section {
		if e, ok := of(e); ok {
			out.Entries = append(out.Entries, e)
		}
	}
	if last != nil && last.Object == out.Object && slices.EqualFunc(last.Entries, out.Entries, func(a, b E) bool { return proto.Equal(a, b) }) {
		return last
	}
	return out
}

// Logging returns the section accessLogging for a direction. A nil Telemetry has none.
func (t *Telemetry) Logging(d Direction) *Logging {
	if t == nil {
		return nil
	}
	return t.logging[d]
}

// Tracing returns the section tracing for a direction. A nil Telemetry has none.
func (t *Telemetry) Tracing(d Direction) *Tracing {
	if t == nil {
		return nil
	}
	return t.tracing[d]
}

// Metrics returns the section metrics for a direction. A nil Telemetry has none.
func (t *Telemetry) Metrics(d Direction) *Metrics {
	if t == nil {
		return nil
	}
	return t.metrics[d]
}

// names returns the names of providers, in their order.
func names(refs []*telemetryv1.ProviderRef) []string {
	var out []string
	for _, r := range refs {
		out = append(out, r.GetName())
	}
	return out
}
