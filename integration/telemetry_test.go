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
- {name: skywalking, skywalking: {service: collector.shop.test, port: 4317, accessToken: s3cret}}
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
		s.set(telemetryOf("shop", "edge", `{selector: {matchLabels: {app: edge}}, accessLogging: [{providers: [{name: text}], filter: {expression: "requst.path != '' || response.cod < 500"}}, {providers: [{name: json}]}]}`))
		s.call("/unknown")
		s.awaitLogged(`"path":"/unknown"`)
		if out := s.edge.process.output(); strings.Contains(out, "TEXT /unknown") {
			t.Errorf("a filter matches that names unknown attributes:\n%s", out)
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
			{"skywalking", []string{`skywalking ["s3cret"]`, "lit", "joe"}},
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

// TestEnvoyServerTelemetry: in the mode SERVER a sidecar reports what it takes and nothing of what it
// sends, with the result of policies of a dry run. It counts connections when they are there and when
// they end.
func TestEnvoyServerTelemetry(t *testing.T) {
	t.Parallel()
	s, in, streams := startTelemetryScene(t, protocol.Delta), freePort(t), freePort(t)
	s.set(fmt.Sprintf(`
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: client, namespace: shop}
spec:
  workloadSelector: {labels: {app: client}}
  ingress:
  - {port: {number: %d, protocol: HTTP, name: http}, bind: 127.0.0.1, defaultEndpoint: "127.0.0.1:%d"}
  - {port: {number: %d, protocol: TCP, name: tcp}, bind: 127.0.0.1, defaultEndpoint: "127.0.0.1:%d"}
`, in, s.v1.port, streams, startTCPUpstream(t, "hello")), `
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: watched, namespace: shop, annotations: {istio.io/dry-run: "true"}}
spec: {action: DENY, rules: [{to: [{operation: {paths: [/served]}}]}]}
`, telemetryOf("shop", "servers", `
  accessLogging: [{match: {mode: SERVER}, providers: [{name: als}, {name: tcp-als}]}]
  tracing: [{match: {mode: SERVER}, providers: [{name: zipkin}], randomSamplingPercentage: 100}]
  metrics: [{providers: [{name: prometheus}], overrides: [{match: {metric: ALL_METRICS, mode: CLIENT}, disabled: true}, {match: {metric: REQUEST_COUNT, mode: SERVER}, tagOverrides: {served: {value: "'yes'"}}}]}]`))
	send(t, s.atSidecar("/sent"))
	send(t, request{port: in, host: shopHost, path: "/served"})
	s.collector.await(t, "als requests /served 200")
	s.collector.await(t, "zipkin", "/served", "istio.authorization.dry_run.deny_policy.result=denied", "istio.authorization.dry_run.deny_policy.name=ns[shop]-policy[watched]-rule[0]")
	if got := s.collector.all("/sent"); len(got) > 0 {
		t.Errorf("reports of what the sidecar sends: %q", got)
	}
	awaitGreeting(t, streams, "hello")
	s.collector.await(t, "als connections inbound|")
	eventually(t, "the sidecar counts", func() error {
		body, err := s.client.get("/stats/prometheus?filter=istio")
		if err != nil {
			return err
		}
		for _, want := range []string{
			`envoy_istio_requests_total{`, `served="yes"`, `envoy_istio_tcp_connections_opened_total{`, `envoy_istio_tcp_connections_closed_total{`, `reporter="destination"`,
		} {
			if !strings.Contains(string(body), want) {
				return fmt.Errorf("it lacks %s:\n%s", want, body)
			}
		}
		if strings.Contains(string(body), `reporter="source"`) {
			return fmt.Errorf("it counts what it sends:\n%s", body)
		}
		opened, closed := countOf(string(body), "envoy_istio_tcp_connections_opened_total"), countOf(string(body), "envoy_istio_tcp_connections_closed_total")
		if opened != closed || len(s.collector.all("als connections")) != opened {
			return fmt.Errorf("%d connections are opened, %d closed, and %q logged", opened, closed, s.collector.all("als connections"))
		}
		return nil
	})
	s.client.expectNothingRejected()
}

// countOf returns the sum of a counter of Prometheus over all its tags.
func countOf(body, name string) (n int) {
	for line := range strings.Lines(body) {
		if strings.HasPrefix(line, name+"{") {
			var one int
			_, _ = fmt.Sscan(line[strings.LastIndexByte(line, ' ')+1:], &one)
			n += one
		}
	}
	return n
}
