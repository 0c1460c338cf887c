package security

import (
	"fmt"
	"slices"

	telemetryv1 "istio.io/api/telemetry/v1alpha1"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/xds/generate/filter"
	"github.com/portolan-mesh/portolan/xds/mesh"
	selecting "github.com/portolan-mesh/portolan/xds/mesh/policy"
	"github.com/portolan-mesh/portolan/xds/verdict"
)

// Telemetry judges a Telemetry: whom it is for, which older one comes first, and whether its
// providers can take what it sends them.
func Telemetry(j *verdict.Judge, object *config.Config) {
	t := &telemetryJudge{selection: selectionOf(j, object), spec: object.Spec.(*telemetryv1.Telemetry)}
	if t.policy.Narrow() {
		t.selected = slices.DeleteFunc(t.selected, func(p chosen) bool { return p.Namespace != object.Namespace })
	}
	t.unused()
	t.shadowed()
	t.providers()
	t.unmatched()
	if servers := t.servers(); servers.Count() > 0 {
		t.add(verdict.TelemetryNotForGRPC, "spec", "have the programs report themselves, or give them sidecars", "is nothing that a gRPC program does: %s", servers)
	}
}

type telemetryJudge struct {
	selection
	spec *telemetryv1.Telemetry
}

// shadowed tells of an older Telemetry of the same scope that comes first.
func (j *telemetryJudge) shadowed() {
	var first *config.Config
	for o := range j.Objects(schema.Telemetry, j.object.Namespace) {
		if config.Compare(o, j.object) < 0 && j.sameScope(selecting.NewPolicy(o)) && (first == nil || config.Compare(o, first) < 0) {
			first = o
		}
	}
	if first == nil {
		return
	}
	v := verdict.Verdict{
		Code: verdict.TelemetryShadowed, Field: "spec.selector", Other: first.Key(),
		Message: fmt.Sprintf("is for proxies that %s is for, too, which is older and is used alone for these", first.Key()),
		Remedy:  "put both into one Telemetry, or give them other labels",
	}
	switch {
	case len(j.policy.Targets()) > 0:
		v.Field = "spec.targetRefs"
	case !j.policy.Narrow():
		whom := "namespace " + j.object.Namespace
		if j.object.Namespace == j.root {
			whom = "the mesh"
		}
		v.Field = "spec"
		v.Message = fmt.Sprintf("has no selector, so it is for all of %s, as is %s, which is older and is used alone", whom, first.Key())
		v.Remedy = "put both into one Telemetry, or give this one a selector"
	}
	j.Add(v)
}

// sameScope says whether a Telemetry of the namespace is for proxies that this one is for: both are
// for all, or both select a known one.
func (j *telemetryJudge) sameScope(o *selecting.Policy) bool {
	if !j.policy.Narrow() || !o.Narrow() {
		return j.policy.Narrow() == o.Narrow()
	}
	return slices.ContainsFunc(j.selected, func(p chosen) bool { return o.Selects(p.workload, j.root) })
}

// unmatched tells of entries for what comes into workloads, of a Telemetry for gateways alone.
func (j *telemetryJudge) unmatched() {
	if !j.gatewaysAlone() {
		return
	}
	judge := func(at string, mode telemetryv1.WorkloadMode) {
		if mode == telemetryv1.WorkloadMode_SERVER {
			j.add(verdict.TelemetryUnmatched, at+".match.mode", "write CLIENT, which stands for gateways too, or leave the mode out",
				"is SERVER: gateways have no traffic of that kind, and the Telemetry is for gateways alone")
		}
	}
	for i, e := range j.spec.GetAccessLogging() {
		judge(verdict.At("spec.accessLogging", i), e.GetMatch().GetMode())
	}
	for i, e := range j.spec.GetMetrics() {
		for k, o := range e.GetOverrides() {
			judge(verdict.At(verdict.At("spec.metrics", i)+".overrides", k), o.GetMatch().GetMode())
		}
	}
	for i, e := range j.spec.GetTracing() {
		judge(verdict.At("spec.tracing", i), e.GetMatch().GetMode())
	}
}

// providers tells of providers that are not there or do not take what they get, and of traces that go
// nowhere.
func (j *telemetryJudge) providers() {
	for i, e := range j.spec.GetAccessLogging() {
		j.each(fmt.Sprintf("spec.accessLogging[%d].providers", i), e.GetProviders(), "access logs", logKinds, filter.LogFault)
	}
	for i, e := range j.spec.GetMetrics() {
		j.each(fmt.Sprintf("spec.metrics[%d].providers", i), e.GetProviders(), "metrics", metricKinds, filter.MetricFault)
	}
	for i, e := range j.spec.GetTracing() {
		j.each(fmt.Sprintf("spec.tracing[%d].providers", i), e.GetProviders(), "traces", traceKinds, filter.TraceFault)
	}
	if len(j.spec.GetTracing()) > 0 && !j.traced() {
		j.add(verdict.ReporterMissing, "spec.tracing", "name a provider here or in defaultProviders of the mesh configuration",
			"has no provider, nor does another Telemetry or the mesh name one: nothing is traced")
	}
}

// traced says whether anything names a provider of traces.
func (j *telemetryJudge) traced() bool {
	if len(j.Mesh().MeshConfig().GetDefaultProviders().GetTracing()) > 0 {
		return true
	}
	for _, namespace := range []string{j.object.Namespace, j.root} {
		for o := range j.Objects(schema.Telemetry, namespace) {
			named := func(t *telemetryv1.Tracing) bool { return len(t.GetProviders()) > 0 }
			if slices.ContainsFunc(o.Spec.(*telemetryv1.Telemetry).GetTracing(), named) {
				return true
			}
		}
	}
	return false
}

// each judges the providers of an entry.
func (j *telemetryJudge) each(field string, refs []*telemetryv1.ProviderRef, what, kinds string, fault func(*mesh.View, string) filter.Fault) {
	for i, ref := range refs {
		at, unseen, worst := verdict.At(field, i)+".name", verdict.Names{}, filter.None
		look := func(v *mesh.View, who string) {
			f := fault(v, ref.GetName())
			if worst = max(worst, f); f == filter.Unseen {
				unseen.Add(who)
			}
		}
		for _, p := range j.selected {
			if p.Type != discovery.Proxyless {
				look(j.SeenBy(p.Proxy), p.ID)
			}
		}
		if len(j.selected) == 0 {
			look(j.View(j.object.Namespace), "namespace "+j.object.Namespace)
		}
		if code, message, remedy := providerFault(worst, ref.GetName(), what, kinds, &unseen); code != "" {
			j.add(code, at, remedy, "%s", message)
		}
	}
}
