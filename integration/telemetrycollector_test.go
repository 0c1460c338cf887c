package integration

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	alsv3 "github.com/envoyproxy/go-control-plane/envoy/service/accesslog/v3"
	metricsv3 "github.com/envoyproxy/go-control-plane/envoy/service/metrics/v3"
	commonv1 "go.opentelemetry.io/proto/otlp/common/v1"
	logsv1 "go.opentelemetry.io/proto/otlp/logs/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"
)

// telemetryCollector takes what proxies report: over gRPC Envoy's access log and metrics services,
// OpenTelemetry's logs and spans and SkyWalking's segments, and over HTTP spans of OpenTelemetry, Zipkin
// and Datadog. It notes each in a line.
type telemetryCollector struct {
	grpc, http int // its ports

	mu    sync.Mutex
	lines []string
}

func startTelemetryCollector(t *testing.T) *telemetryCollector {
	t.Helper()
	listen := func() (net.Listener, int) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		return l, l.Addr().(*net.TCPAddr).Port
	}
	c := &telemetryCollector{}
	forGRPC, port := listen()
	c.grpc = port
	forHTTP, port := listen()
	c.http = port
	overGRPC, overHTTP := grpc.NewServer(grpc.UnknownServiceHandler(c.stream)), &http.Server{Handler: c}
	var running sync.WaitGroup
	running.Go(func() { _ = overGRPC.Serve(forGRPC) })
	running.Go(func() { _ = overHTTP.Serve(forHTTP) })
	t.Cleanup(func() {
		overGRPC.Stop()
		_ = overHTTP.Close()
		running.Wait()
	})
	return c
}

// entry is the service of the collector.
func (c *telemetryCollector) entry() string {
	return fmt.Sprintf(`
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: collector, namespace: shop}
spec:
  hosts: [collector.shop.test]
  resolution: STATIC
  ports: [{number: 4317, name: grpc, protocol: GRPC}, {number: 4318, name: http, protocol: HTTP}]
  endpoints: [{address: 127.0.0.1, ports: {grpc: %d, http: %d}}]
`, c.grpc, c.http)
}

// statsd takes statistics over UDP, and returns the port.
func (c *telemetryCollector) statsd(t *testing.T) int {
	t.Helper()
	over, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() {
		for packet := make([]byte, 64<<10); ; {
			n, _, err := over.ReadFrom(packet)
			if err != nil {
				return
			}
			for line := range strings.Lines(string(packet[:n])) {
				c.note("statsd %s", line)
			}
		}
	})
	t.Cleanup(func() {
		_ = over.Close()
		running.Wait()
	})
	return over.LocalAddr().(*net.UDPAddr).Port
}

// note adds a line.
func (c *telemetryCollector) note(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lines = append(c.lines, fmt.Sprintf(format, args...))
}

// all returns the lines that have every part.
func (c *telemetryCollector) all(parts ...string) (out []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
lines:
	for _, l := range c.lines {
		for _, p := range parts {
			if !strings.Contains(l, p) {
				continue lines
			}
		}
		out = append(out, l)
	}
	return out
}

// await waits for a line that has every part.
func (c *telemetryCollector) await(t *testing.T, parts ...string) {
	t.Helper()
	eventually(t, fmt.Sprintf("the collector gets %q", parts), func() error {
		if len(c.all(parts...)) == 0 {
			return fmt.Errorf("it has %q", c.all())
		}
		return nil
	})
}

// stream takes a stream of gRPC by the name of its method.
func (c *telemetryCollector) stream(_ any, s grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(s)
	switch {
	case strings.HasSuffix(method, "/StreamAccessLogs"):
		name := ""
		for {
			m := &alsv3.StreamAccessLogsMessage{}
			if err := s.RecvMsg(m); err != nil {
				return err
			}
			if n := m.GetIdentifier().GetLogName(); n != "" {
				name = n
			}
			for _, e := range m.GetHttpLogs().GetLogEntry() {
				c.note("als %s %s %d %v", name, e.GetRequest().GetPath(), e.GetResponse().GetResponseCode().GetValue(), e.GetRequest().GetRequestHeaders())
			}
			for _, e := range m.GetTcpLogs().GetLogEntry() {
				c.note("als %s %s", name, e.GetCommonProperties().GetUpstreamCluster())
			}
		}
	case strings.HasSuffix(method, "LogsService/Export"): // a request has the form of LogsData
		m := &logsv1.LogsData{}
		if err := s.RecvMsg(m); err != nil {
			return err
		}
		for _, r := range m.GetResourceLogs() {
			for _, scope := range r.GetScopeLogs() {
				for _, l := range scope.GetLogRecords() {
					c.note("log %s %s", l.GetBody().GetStringValue(), attributes(l.GetAttributes()))
				}
			}
		}
	case strings.HasSuffix(method, "/StreamMetrics"):
		for {
			m := &metricsv3.StreamMetricsMessage{}
			if err := s.RecvMsg(m); err != nil {
				return err
			}
			for _, f := range m.GetEnvoyMetrics() {
				c.note("metrics %s", f.GetName())
			}
		}
	case strings.HasSuffix(method, "/collect"): // of SkyWalking, whose segments are read as bytes
		for {
			m := &emptypb.Empty{}
			if err := s.RecvMsg(m); err != nil {
				return s.SendMsg(&emptypb.Empty{})
			}
			token := metadata.ValueFromIncomingContext(s.Context(), "authentication")
			c.note("skywalking %q %q", token, m.ProtoReflect().GetUnknown())
		}
	default:
		m := &tracev1.TracesData{}
		if err := s.RecvMsg(m); err != nil {
			return err
		}
		c.spans("otlp-grpc", m)
	}
	return s.SendMsg(&emptypb.Empty{})
}

func (c *telemetryCollector) spans(by string, m *tracev1.TracesData) {
	for _, r := range m.GetResourceSpans() {
		for _, scope := range r.GetScopeSpans() {
			for _, span := range scope.GetSpans() {
				c.note("%s %s %s %s", by, span.GetName(), attributes(r.GetResource().GetAttributes()), attributes(span.GetAttributes()))
			}
		}
	}
}

func attributes(list []*commonv1.KeyValue) string {
	var out []string
	for _, a := range list {
		out = append(out, a.GetKey()+"="+a.GetValue().GetStringValue())
	}
	return strings.Join(out, " ")
}

// ServeHTTP takes spans over HTTP.
func (c *telemetryCollector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	switch {
	case r.URL.Path == "/api/v2/spans":
		var spans []struct {
			Name, TraceID string
			Tags          map[string]string
		}
		if err := json.Unmarshal(body, &spans); err != nil {
			c.note("zipkin: %v", err)
		}
		for _, s := range spans {
			var tags []string
			for k, v := range s.Tags {
				tags = append(tags, k+"="+v)
			}
			c.note("zipkin %s %d %s", s.Name, len(s.TraceID), strings.Join(tags, " "))
		}
		w.WriteHeader(http.StatusAccepted)
	case r.URL.Path == "/v1/traces":
		m := &tracev1.TracesData{}
		if err := proto.Unmarshal(body, m); err != nil {
			c.note("otlp-http: %v", err)
		}
		c.spans("otlp-http "+r.Header.Get("x-key"), m)
	case strings.HasPrefix(r.URL.Path, "/v0."):
		c.note("datadog %s", body) // MessagePack, whose texts stand as they are
		_, _ = w.Write([]byte("{}"))
	}
}
