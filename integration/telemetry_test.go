package integration

import (
	"fmt"
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
)

// reporters are providers of each kind, one of them with a service that is not there.
const reporters = `
extensionProviders:
- {name: text, envoyFileAccessLog: {path: /dev/stdout, logFormat: {text: "TEXT %REQ(:PATH)% %RESPONSE_CODE%"}}}
- {name: json, envoyFileAccessLog: {logFormat: {labels: {kind: json, path: "%REQ_WITHOUT_QUERY(:PATH)%", none: "%REQ(x-none)%"}}, omitEmptyValues: true}}
- {name: als, envoyHttpAls: {service: shop/collector.shop.test, port: 4317, logName: requests, additionalRequestHeadersToLog: [x-user]}}
- {name: tcp-als, envoyTcpAls: {service: collector.shop.test, port: 4317, logName: connections}}
- {name: otel-logs, envoyOtelAls: {service: collector.shop.test, port: 4317, logFormat: {text: "OTEL %REQ(:PATH)%", labels: {status: "%RESPONSE_CODE%"}}}}
- {name: gone, envoyHttpAls: {service: none.shop.test, port: 4317}}
- {name: zipkin, zipkin: {service: collector.shop.test, port: 4318}}
- {name: zipkin-64, zipkin: {service: collector.shop.test, port: 4318, enable64bitTraceId: true}}
- {name: datadog, datadog: {service: collector.shop.test, port: 4318}}
- {name: otlp-grpc, opentelemetry: {service: collector.shop.test, port: 4317}}
- {name: otlp-http, opentelemetry: {service: collector.shop.test, port: 4318, http: {path: /v1/traces, timeout: 1s, headers: [{name: x-key, value: k}]}}}
`

// telemetryOf is a Telemetry with a spec.
func telemetryOf(namespace, name, spec string) string {
	return fmt.Sprintf("apiVersion: telemetry.istio.io/v1\nkind: Telemetry\nmetadata: {name: %s, namespace: %s}\nspec: %s\n", name, namespace, spec)
}

// telemetryScene is a gateway and a sidecar that report to a collector.
type telemetryScene struct {
	*server
	*shop
	collector    *telemetryCollector
	edge, client *envoy
}

func startTelemetryScene(t *testing.T, v protocol.Variant) *telemetryScene {
	t.Helper()
	s := &telemetryScene{collector: startTelemetryCollector(t), shop: newShop(t)}
	s.server = startServer(t, serverOptions{meshConfig: reporters})
	s.apply(s.entry(s.v1, s.v2), s.rule(), s.door(), s.routes(100, 0), s.collector.entry())
	s.edge, s.client = s.startPair(v)
	return s
}

// set applies documents, and waits until the proxies have them.
func (s *telemetryScene) set(documents ...string) {
	s.t.Helper()
	s.awaitSynced(s.apply(documents...), "edge", "client")
	s.edge.expectNothingRejected()
	s.client.expectNothingRejected()
}

// call sends a request through the gateway.
func (s *telemetryScene) call(path string) {
	s.t.Helper()
	q := s.atGateway(path)
	q.header = map[string]string{"x-user": "joe"}
	if got := send(s.t, q); got.String() != "v1" {
		s.t.Errorf("%s: %s, want v1", path, got)
	}
}

// TestEnvoyAccessLogs: each provider gets what its entry selects, in its format. One whose service is
// not there harms no other. A namespace switches logs off, and a workload its own on again.
func TestEnvoyAccessLogs(t *testing.T) {
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		s := startTelemetryScene(t, v)
		s.set(telemetryOf("istio-system", "mesh", `{accessLogging: [{providers: [{name: text}, {name: json}, {name: als}, {name: tcp-als}, {name: otel-logs}, {name: gone}], filter: {expression: "response.code < 500 && !request.path.startsWith('/quiet')"}}]}`))
		s.call("/quiet")
		s.call("/loud?x=1")
		s.collector.await(t, "als requests /loud?x=1 200", "x-user:joe")
		s.collector.await(t, "als connections outbound|"+fmt.Sprint(s.service)+"|v1|"+shopHost)
		s.collector.await(t, "log OTEL /loud?x=1 status=200")
		s.awaitLogged(`TEXT /loud?x=1 200`, `"path":"/loud"`)
		if out := s.edge.process.output(); strings.Contains(out, "/quiet") || strings.Contains(out, `"none"`) || len(s.collector.all("/quiet")) > 0 {
			t.Errorf("something is logged that the filter leaves out, or has no value:\n%s\n%q", out, s.collector.all("/quiet"))
		}

		s.set(telemetryOf("shop", "namespace", `{accessLogging: [{disabled: true}]}`))
		s.call("/off")
		s.set(telemetryOf("shop", "edge", `{selector: {matchLabels: {app: edge}}, accessLogging: [{match: {mode: CLIENT}, providers: [{name: text}]}]}`))
		s.call("/quiet-no-more")
		s.awaitLogged("TEXT /quiet-no-more 200")
		if out := s.edge.process.output(); strings.Contains(out, "/off") || len(s.collector.all("/off")) > 0 {
			t.Errorf("what the namespace switched off was logged:\n%s", out)
		}
		listeners := s.edge.mustHold()
		s.set(telemetryOf("other", "namespace", `{accessLogging: [{providers: [{name: text}]}]}`))
		for name, h := range s.edge.mustHold() {
			if before := listeners[name]; before != h {
				t.Errorf("%s was sent again for a Telemetry of another namespace", name)
			}
		}
	})
}

// awaitLogged waits until the gateway has written each of some texts.
func (s *telemetryScene) awaitLogged(texts ...string) {
	s.t.Helper()
	eventually(s.t, fmt.Sprintf("the gateway logs %q", texts), func() error {
		for _, text := range texts {
			if !strings.Contains(s.edge.process.output(), text) {
				return fmt.Errorf("it has no %s", text)
			}
		}
		return nil
	})
}

// TestEnvoyTraces: each provider gets the spans of all requests, or of none, with the tags of
// Telemetries and those of the workload.
func TestEnvoyTraces(t *testing.T) {
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		s := startTelemetryScene(t, v)
		const tags = `customTags: {lit: {literal: {value: x}}, env: {environment: {name: NONE_SUCH, defaultValue: none}}, head: {header: {name: x-user}}, form: {formatter: {value: "%REQ(:METHOD)%"}}}`
		trace := func(spec string) string {
			return telemetryOf("shop", "traces", "{tracing: [{"+spec+"}]}")
		}
		for _, c := range []struct {
			provider string
			want     []string
		}{
			{"zipkin", []string{"zipkin " + shopHost + "/* 32", "lit=x", "env=none", "head=joe", "form=GET", "istio.namespace=shop", "istio.canonical_service=edge", "istio.canonical_revision=latest"}},
			{"zipkin-64", []string{"zipkin " + shopHost + "/* 16", "lit=x"}},
			{"otlp-grpc", []string{"otlp-grpc", "lit=x", "head=joe", "istio.namespace=shop", "service.name="}},
			{"otlp-http", []string{"otlp-http k", "lit=x", "head=joe", "istio.namespace=shop", "service.name="}},
			{"datadog", []string{"datadog", "lit", "joe"}},
		} {
			if c.provider != "datadog" { // its agent drops what is not sampled
				s.set(trace("providers: [{name: " + c.provider + "}], randomSamplingPercentage: 0, " + tags))
				s.call("/unsampled-" + c.provider)
			}
			s.set(trace("providers: [{name: " + c.provider + "}], randomSamplingPercentage: 100, disableSpanReporting: true, " + tags))
			s.call("/unreported-" + c.provider)
			s.set(trace("providers: [{name: " + c.provider + "}], randomSamplingPercentage: 100, " + tags))
			s.call("/sampled-" + c.provider)
			s.collector.await(t, append(c.want, "/sampled-"+c.provider)...)
			if got := s.collector.all("/un"); len(got) > 0 {
				t.Errorf("%s: spans that nobody asked for: %q", c.provider, got)
			}
		}
		s.set(trace("providers: [{name: zipkin}], randomSamplingPercentage: 100, enableIstioTags: false"))
		s.call("/untagged")
		s.collector.await(t, "zipkin", "/untagged")
		if got := s.collector.all("/untagged", "istio.namespace"); len(got) > 0 {
			t.Errorf("tags that are switched off: %q", got)
		}
		for isolated, want := range map[bool]bool{false: true, true: false} {
			s.set(trace(fmt.Sprintf("providers: [{name: zipkin}], randomSamplingPercentage: 100, disableContextPropagation: %v", isolated)))
			if got := send(t, s.atGateway("/context")); (got.echo.Header.Get("x-b3-traceid") != "") != want {
				t.Errorf("context propagation off: %v: the service sees %v", isolated, got.echo.Header)
			}
		}
	})
}

// TestEnvoyMetrics: with the provider prometheus proxies make Istio's metrics of requests, with the
// tags that Telemetries change, and without those that they disable.
func TestEnvoyMetrics(t *testing.T) {
	s := startTelemetryScene(t, protocol.Delta)
	s.set(telemetryOf("shop", "metrics", `
  metrics:
  - providers: [{name: prometheus}]
    overrides:
    - {match: {metric: REQUEST_SIZE}, disabled: true}
    - {match: {metric: REQUEST_COUNT}, tagOverrides: {user: {value: "request.headers['x-user']"}, response_flags: {operation: REMOVE}}}`))
	s.call("/a")
	eventually(t, "the gateway counts the request", func() error {
		body, err := s.edge.get("/stats/prometheus?filter=istio")
		if err != nil {
			return err
		}
		for _, line := range strings.Split(string(body), "\n") {
			if !strings.HasPrefix(line, "envoy_istio_requests_total{") {
				continue
			}
			for _, want := range []string{`reporter="source"`, `response_code="200"`, `user="joe"`, `source_app="edge"`, `destination_service="` + shopHost + `"`, `destination_service_namespace="shop"`, `request_protocol="http"`} {
				if !strings.Contains(line, want) {
					t.Fatalf("%s has no %s", line, want)
				}
			}
			if strings.Contains(line, "response_flags") || !strings.Contains(string(body), "envoy_istio_request_duration_milliseconds_bucket{") || strings.Contains(string(body), "istio_request_bytes") {
				t.Fatalf("overrides do not count:\n%s", body)
			}
			return nil
		}
		return fmt.Errorf("it has %.500s", body)
	})
}
