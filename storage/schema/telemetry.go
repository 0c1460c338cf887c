package schema

import (
	"regexp"
	"strings"
	"time"

	telemetryv1 "istio.io/api/telemetry/v1alpha1"

	"github.com/portolan-mesh/portolan/storage/config"
)

// ofInterval is the reason of reportingInterval.
const ofInterval = "has no effect here: a stock Envoy counts the bytes of a connection when it ends"

func telemetry() *Schema {
	return definition[*telemetryv1.Telemetry]{
		kind: Telemetry, plural: "telemetries",
		codec: config.Protobuf[telemetryv1.Telemetry](),
		served: serve("selector", "targetRef", "targetRefs", "tracing", "accessLogging").
			with("metrics", serve("providers", "overrides").without(ofInterval, "reportingInterval")),
		check: checkTelemetry,
	}.schema()
}

func checkTelemetry(c checker, t *telemetryv1.Telemetry) {
	c.target(t)
	each(c.at("tracing"), t.Tracing, func(c checker, t *telemetryv1.Tracing) {
		providers(c.at("providers"), t.GetProviders())
		if len(t.GetProviders()) > 1 {
			c.at("providers").fail("names %d providers: tracing takes one", len(t.GetProviders()))
		}
		c.at("match", "mode").mode(t.GetMatch().GetMode())
		if p := t.GetRandomSamplingPercentage(); p != nil {
			c.at("randomSamplingPercentage").percentage(p.GetValue())
		}
		for _, name := range sortedKeys(t.GetCustomTags()) {
			checkTag(c.at("customTags"), name, t.GetCustomTags()[name])
		}
	})
	each(c.at("metrics"), t.Metrics, func(c checker, m *telemetryv1.Metrics) {
		providers(c.at("providers"), m.GetProviders())
		c.at("reportingInterval").lasts(m.GetReportingInterval(), time.Second)
		each(c.at("overrides"), m.GetOverrides(), checkOverride)
	})
	each(c.at("accessLogging"), t.AccessLogging, func(c checker, l *telemetryv1.AccessLogging) {
		providers(c.at("providers"), l.GetProviders())
		c.at("match", "mode").mode(l.GetMatch().GetMode())
		if f := l.GetFilter(); f != nil {
			at := c.at("filter", "expression")
			at.failIf(at.expression(f.GetExpression()))
		}
	})
}

// mode refuses a mode that is none.
func (c checker) mode(m telemetryv1.WorkloadMode) {
	if _, known := telemetryv1.WorkloadMode_name[int32(m)]; !known {
		c.fail("must be one of CLIENT_AND_SERVER, CLIENT, SERVER, is %d", m)
	}
}

func providers(c checker, list []*telemetryv1.ProviderRef) {
	each(c, list, func(c checker, p *telemetryv1.ProviderRef) {
		if p.GetName() == "" {
			c.at("name").fail("is missing: name a provider of the mesh configuration")
		}
	})
}

func checkTag(c checker, name string, tag *telemetryv1.Tracing_CustomTag) {
	at := c.key(name)
	if name == "" {
		at.fail("has no name")
	}
	switch t := tag.GetType().(type) {
	case nil:
		at.fail("lacks a value: set one of literal, environment, header, formatter")
	case *telemetryv1.Tracing_CustomTag_Literal:
		at.at("literal", "value").required(t.Literal.GetValue())
	case *telemetryv1.Tracing_CustomTag_Environment:
		at.at("environment", "name").required(t.Environment.GetName())
	case *telemetryv1.Tracing_CustomTag_Header:
		at.at("header", "name").required(t.Header.GetName())
	case *telemetryv1.Tracing_CustomTag_Formatter:
		if at := at.at("formatter", "value"); t.Formatter.GetValue() == "" {
			at.fail("is missing")
		} else {
			at.failIf(tagFormat(t.Formatter.GetValue(), at.expression))
		}
	}
}

func checkOverride(c checker, o *telemetryv1.MetricsOverrides) {
	c.at("match", "mode").mode(o.GetMatch().GetMode())
	if m, ok := o.GetMatch().GetMetricMatch().(*telemetryv1.MetricSelector_CustomMetric); ok {
		c.at("match", "customMetric").required(m.CustomMetric)
		c.at("match", "customMetric").notServed("has no effect here: a stock Envoy makes Istio's standard metrics alone")
	}
	switch m := o.GetMatch().GetMetric(); m {
	case telemetryv1.MetricSelector_GRPC_REQUEST_MESSAGES, telemetryv1.MetricSelector_GRPC_RESPONSE_MESSAGES:
		c.at("match", "metric").notServed("%s has no effect here: a stock Envoy counts the messages of gRPC only for clusters", m)
	}
	for _, name := range sortedKeys(o.GetTagOverrides()) {
		at, tag := c.at("tagOverrides").key(name), o.GetTagOverrides()[name]
		if !tagName.MatchString(name) {
			at.fail("is no name of a tag: write letters, digits and underscores, no digit in front")
		}
		switch {
		case telemetryv1.MetricsOverrides_TagOverride_Operation_name[int32(tag.GetOperation())] == "":
			at.at("operation").fail("must be one of UPSERT, REMOVE, is %d", tag.GetOperation())
		case tag.GetOperation() == telemetryv1.MetricsOverrides_TagOverride_UPSERT && tag.GetValue() == "":
			at.at("value").fail("is missing: UPSERT needs one")
		case tag.GetOperation() == telemetryv1.MetricsOverrides_TagOverride_REMOVE && tag.GetValue() != "":
			at.at("value").fail("does not go with REMOVE: leave it out")
		case tag.GetValue() != "":
			at.at("value").checkTagValue(tag.GetValue())
		}
	}
}

// tagName matches what Prometheus takes for the name of a label.
var tagName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// checkTagValue refuses an expression that proxies do not take for a tag. They have it within a command
// of a format, which ends at the first ")%".
func (c checker) checkTagValue(value string) {
	if strings.Contains(value, ")%") {
		c.fail(`has ")%%", at which the command ends that proxies read it in: put a space between`)
		return
	}
	c.failIf(c.expression(value))
}
