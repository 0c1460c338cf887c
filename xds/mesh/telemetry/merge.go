package telemetry

import (
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"
	telemetryv1 "istio.io/api/telemetry/v1alpha1"
)

// Own is the name under which MergeLogging has the log that the mesh configuration sets itself, by
// accessLogFile. No provider has it.
const Own = ""

// Log is one access log.
type Log struct {
	Provider string
	// Filter is the expression of CEL that says what is logged; empty for all.
	Filter string
}

// MergeLogging returns the access logs of a direction, in the order of their providers. levels are the
// sections of the mesh, of the namespace and of the workload, without those that are nil; defaults
// are the default providers.
//
// The most specific level that names providers decides which there are. Each entry, from the widest
// level to the most specific, switches its providers on or off. An entry without providers is for
// those of the entry before, an entry without these and without a filter keeps the filter, too.
// Where no entry decides, the log of the mesh stands. (Istio: mergeLogs.)
func MergeLogging(levels []*Logging, defaults []string) []Log {
	if len(defaults) == 0 {
		defaults = []string{Own}
	}
	on, filters, decided := map[string]bool{}, map[string]string{}, false
	if len(levels) == 0 {
		for _, p := range defaults {
			on[p] = true
		}
		return logs(on, filters)
	}
	scope, last := scopeOf(levels, defaults), defaults
	for _, level := range levels {
		for _, e := range level.Entries {
			named := names(e.GetProviders())
			if len(named) > 0 {
				last = named
			}
			for _, p := range last {
				if !slices.Contains(scope, p) {
					continue
				}
				if f := e.GetFilter().GetExpression(); f != "" || len(named) > 0 {
					filters[p] = f
				}
				on[p], decided = !e.GetDisabled().GetValue(), true
			}
		}
	}
	if !decided {
		on[Own] = true
	}
	return logs(on, filters)
}

// scopeOf returns the providers that the most specific level names, else the defaults.
func scopeOf[E interface {
	proto.Message
	GetProviders() []*telemetryv1.ProviderRef
}](levels []*Part[E], defaults []string) []string {
	scope := defaults
	for _, level := range levels {
		var named []string
		for _, e := range level.Entries {
			named = append(named, names(e.GetProviders())...)
		}
		if len(named) > 0 {
			scope = named
		}
	}
	return scope
}

func logs(on map[string]bool, filters map[string]string) []Log {
	var out []Log
	for _, p := range slices.Sorted(maps.Keys(on)) {
		if on[p] {
			out = append(out, Log{p, filters[p]})
		}
	}
	return out
}

// Trace says how requests of a direction are traced.
type Trace struct {
	// Provider is where spans go; empty for nowhere.
	Provider string
	// Sampling is the percentage of requests that are traced if nobody has decided before; nil if
	// nothing says it.
	Sampling *float64
	// Tags are added to spans, by name; nil if nothing says any.
	Tags map[string]*telemetryv1.Tracing_CustomTag
	// RequestID: the id of a request says whether it is traced. IstioTags: spans have tags about the
	// workload. Both are true if nothing says otherwise.
	RequestID, IstioTags bool
	// Isolated: requests go on without the headers of the trace.
	Isolated bool
}

// MergeTracing returns how requests of a direction are traced, by the sections of MergeLogging's
// levels and the default providers, of which the first counts; nil if they are not. Each entry
// overrides what those before it have set. (Istio: Telemetries.Tracing.)
func MergeTracing(levels []*Tracing, defaults []string) *Trace {
	out, disabled := &Trace{RequestID: true, IstioTags: true}, false
	if len(defaults) > 0 {
		out.Provider = defaults[0]
	}
	for _, level := range levels {
		for _, e := range level.Entries {
			if p := e.GetProviders(); len(p) > 0 {
				out.Provider = p[0].GetName()
			}
			if e.GetDisableSpanReporting() != nil {
				disabled = e.GetDisableSpanReporting().GetValue()
			}
			if len(e.GetCustomTags()) > 0 {
				out.Tags = e.GetCustomTags()
			}
			if p := e.GetRandomSamplingPercentage(); p != nil {
				out.Sampling = &p.Value
			}
			if e.GetUseRequestIdForTraceSampling() != nil {
				out.RequestID = e.GetUseRequestIdForTraceSampling().GetValue()
			}
			if e.GetEnableIstioTags() != nil {
				out.IstioTags = e.GetEnableIstioTags().GetValue()
			}
			if e.GetDisableContextPropagation() != nil {
				out.Isolated = e.GetDisableContextPropagation().GetValue()
			}
		}
	}
	if disabled || out.Provider == "" {
		return nil
	}
	return out
}

// Metric is what Telemetries change about one metric.
type Metric struct {
	Disabled bool
	// Tags are the changed tags, by name.
	Tags map[string]*telemetryv1.MetricsOverrides_TagOverride
}

// Meter is one provider of metrics, with the metrics that differ from the standard ones.
type Meter struct {
	Provider string
	Metrics  map[telemetryv1.MetricSelector_IstioMetric]Metric
}

// MergeMetrics returns the providers that get metrics of a direction, in the order of their names, by
// the sections of MergeLogging's levels and the default providers. Overrides are applied in order,
// those of an entry without providers to the providers of the entry before. (Istio: mergeMetrics.)
func MergeMetrics(levels []*Metrics, defaults []string) []Meter {
	scope, last := scopeOf(levels, defaults), defaults
	meters := map[string]Meter{}
	add := func(p string) Meter {
		m, ok := meters[p]
		if !ok {
			m = Meter{p, map[telemetryv1.MetricSelector_IstioMetric]Metric{}}
			meters[p] = m
		}
		return m
	}
	if len(levels) == 0 {
		for _, p := range defaults {
			add(p)
		}
	}
	for _, level := range levels {
		for _, e := range level.Entries {
			if named := names(e.GetProviders()); len(named) > 0 {
				last = named
			}
			for _, p := range last {
				if !slices.Contains(scope, p) {
					continue
				}
				meter := add(p)
				for _, o := range e.GetOverrides() {
					meter.override(o)
				}
			}
		}
	}
	var out []Meter
	for _, p := range slices.Sorted(maps.Keys(meters)) {
		out = append(out, meters[p])
	}
	return out
}

// override applies one override to the metrics that it is for.
func (m Meter) override(o *telemetryv1.MetricsOverrides) {
	if _, custom := o.GetMatch().GetMetricMatch().(*telemetryv1.MetricSelector_CustomMetric); custom {
		return
	}
	for id := range telemetryv1.MetricSelector_IstioMetric_name {
		metric := telemetryv1.MetricSelector_IstioMetric(id)
		if of := o.GetMatch().GetMetric(); metric == telemetryv1.MetricSelector_ALL_METRICS || of != telemetryv1.MetricSelector_ALL_METRICS && of != metric {
			continue
		}
		was := m.Metrics[metric]
		if o.GetDisabled() != nil {
			was.Disabled = o.GetDisabled().GetValue()
		}
		if len(o.GetTagOverrides()) > 0 {
			was.Tags = maps.Clone(was.Tags)
			if was.Tags == nil {
				was.Tags = map[string]*telemetryv1.MetricsOverrides_TagOverride{}
			}
			maps.Copy(was.Tags, o.GetTagOverrides())
		}
		m.Metrics[metric] = was
	}
}
