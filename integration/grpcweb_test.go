package integration

import (
	"bytes"
	"context"
	"encoding/base64"
	bigendian "encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
)

// webCall is one call of gRPC-Web to the health service, as a browser sends it.
type webCall struct {
	port    int
	host    string
	service string // whose health is asked
	text    bool   // in base64
}

// webReply is the answer: a message, and the trailers, which are the last part of the body.
type webReply struct {
	http, contentType, serving, status string
}

func (c webCall) send(ctx context.Context) (webReply, error) {
	message, err := proto.Marshal(&healthv1.HealthCheckRequest{Service: c.service})
	if err != nil {
		return webReply{}, err
	}
	body := bigendian.BigEndian.AppendUint32([]byte{0}, uint32(len(message)))
	body = append(body, message...)
	contentType := "application/grpc-web+proto"
	if c.text {
		contentType, body = "application/grpc-web-text", []byte(base64.StdEncoding.EncodeToString(body))
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+local(c.port)+healthv1.Health_Check_FullMethodName, bytes.NewReader(body))
	if err != nil {
		return webReply{}, err
	}
	r.Host = c.host
	r.Header.Set("Content-Type", contentType)
	r.Header.Set("X-Grpc-Web", "1")
	transport := &http.Transport{DisableKeepAlives: true} // HTTP/1.1
	defer transport.CloseIdleConnections()
	response, err := (&http.Client{Transport: transport}).Do(r)
	if err != nil {
		return webReply{}, err
	}
	defer func() { _ = response.Body.Close() }()
	all, err := io.ReadAll(response.Body)
	if err != nil {
		return webReply{}, err
	}
	out := webReply{http: response.Status[:3], contentType: response.Header.Get("Content-Type"), status: response.Header.Get("Grpc-Status")}
	if c.text && out.contentType == contentType {
		if all, err = fromBase64(string(all)); err != nil {
			return out, err
		}
	}
	if !strings.HasPrefix(out.contentType, "application/grpc-web") {
		return out, nil
	}
	for len(all) >= 5 {
		flags, size := all[0], bigendian.BigEndian.Uint32(all[1:])
		if all = all[5:]; len(all) < int(size) {
			return out, errors.New("the body ends within a part")
		}
		part := all[:size]
		all = all[size:]
		if flags&0x80 != 0 {
			for line := range strings.Lines(string(part)) {
				if name, value, _ := strings.Cut(strings.TrimSpace(line), ":"); strings.EqualFold(name, "grpc-status") {
					out.status = strings.TrimSpace(value)
				}
			}
			continue
		}
		answer := &healthv1.HealthCheckResponse{}
		if err := proto.Unmarshal(part, answer); err != nil {
			return out, err
		}
		out.serving = answer.GetStatus().String()
	}
	return out, nil
}

// fromBase64 decodes a stream of base64, whose parts may each end with padding.
func fromBase64(s string) ([]byte, error) {
	var out []byte
	for len(s) >= 4 {
		part, err := base64.StdEncoding.DecodeString(s[:4])
		if err != nil {
			return nil, err
		}
		out, s = append(out, part...), s[4:]
	}
	return out, nil
}

// startHealth starts a gRPC server that serves "up", and returns its port.
func startHealth(t testing.TB) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server, of := grpc.NewServer(), health.NewServer()
	of.SetServingStatus("up", healthv1.HealthCheckResponse_SERVING)
	healthv1.RegisterHealthServer(server, of)
	done := make(chan error, 1)
	go func() { done <- server.Serve(l) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-done; err != nil {
			t.Errorf("the gRPC server ended with: %v", err)
		}
	})
	return l.Addr().(*net.TCPAddr).Port
}

// callGRPC calls the health service with plain gRPC, and returns its status or the code.
func callGRPC(ctx context.Context, port int, host, service string) (string, error) {
	conn, err := grpc.NewClient(local(port), grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithAuthority(host))
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	got, err := healthv1.NewHealthClient(conn).Check(ctx, &healthv1.HealthCheckRequest{Service: service})
	if status.Code(err) == codes.NotFound {
		return "NotFound", nil
	}
	return got.GetStatus().String(), err
}

// TestEnvoyGRPCWeb: browsers call a gRPC server by a gateway's server of GRPC-WEB, by any server
// of a gateway and by a sidecar if the service's port is GRPC-WEB, and by the sidecar beside the
// application. Plain gRPC goes the same ways. Ports of GRPC do not translate by themselves.
func TestEnvoyGRPCWeb(t *testing.T) {
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		s, app := startServer(t, serverOptions{}), startHealth(t)
		web, plain, door, webDoor, in := freePort(t), freePort(t), freePort(t), freePort(t), freePort(t)
		s.apply(fill(`
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: health, namespace: shop}
spec:
  hosts: [health.shop.test]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{number: $web, name: web, protocol: GRPC-WEB, targetPort: $app}, {number: $plain, name: plain, protocol: GRPC, targetPort: $app}]
  endpoints: [{address: 127.0.0.1}]
---
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: edge, namespace: shop}
spec:
  selector: {app: edge}
  servers:
  - {port: {number: $door, name: http, protocol: HTTP}, bind: 127.0.0.1, hosts: ['*.shop.test']}
  - {port: {number: $2door, name: web, protocol: GRPC-WEB}, bind: 127.0.0.1, hosts: ['*.shop.test']}
`, "$web", web, "$plain", plain, "$door", door, "$2door", webDoor, "$app", app))
		route := func(name string, port int) string {
			return fill(`---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: $name, namespace: shop}
spec:
  hosts: [$name.shop.test]
  gateways: [edge]
  http:
  - route: [{destination: {host: health.shop.test, port: {number: $port}}}]
    corsPolicy:
      allowOrigins: [{exact: "https://shop.test"}]
      allowMethods: [POST]
      allowHeaders: [content-type, x-grpc-web]
      exposeHeaders: [grpc-status, grpc-message]
`, "$name", name, "$port", port)
		}
		s.apply(route("web", web), route("plain", plain), sidecarOf(fill(`
  ingress:
  - port: {number: $in, protocol: GRPC-WEB, name: web}
    bind: 127.0.0.1
    defaultEndpoint: 127.0.0.1:$app
`, "$in", in, "$app", app)))
		edge, client := s.startPair(v)

		const serving, unknown = "200 SERVING 0", "200  5"
		for _, c := range []struct {
			name string
			call webCall
			want string
		}{
			{"a gateway's server of GRPC-WEB, to a port of GRPC", webCall{port: webDoor, host: "plain.shop.test"}, serving},
			{"a gateway's server of GRPC-WEB, to a port of GRPC-WEB", webCall{port: webDoor, host: "web.shop.test"}, serving},
			{"a gateway's server of HTTP, to a port of GRPC-WEB", webCall{port: door, host: "web.shop.test"}, serving},
			{"a sidecar, to a port of GRPC-WEB", webCall{port: web, host: "health.shop.test"}, serving},
			{"the application's sidecar", webCall{port: in, host: "health.shop.test"}, serving},
		} {
			for _, text := range []bool{false, true} {
				c.call.text = text
				for service, want := range map[string]string{"up": c.want, "nobody": unknown} {
					c.call.service = service
					eventually(t, c.name, func() error {
						got, err := c.call.send(t.Context())
						if text := fmt.Sprint(got.http, " ", got.serving, " ", got.status); err == nil && text != want {
							err = fmt.Errorf("%+v gets %s of %s, want %s", c.call, text, got.contentType, want)
						}
						return err
					})
				}
			}
			for service, want := range map[string]string{"up": "SERVING", "nobody": "NotFound"} {
				if got, err := callGRPC(t.Context(), c.call.port, c.call.host, service); err != nil || got != want {
					t.Errorf("%s: plain gRPC gets %s, %v, want %s", c.name, got, err, want)
				}
			}
		}
		for name, call := range map[string]webCall{
			"a gateway's server of HTTP, to a port of GRPC": {port: door, host: "plain.shop.test", service: "up"},
			"a sidecar, to a port of GRPC":                  {port: plain, host: "health.shop.test", service: "up"},
		} {
			if got, err := call.send(t.Context()); err != nil || got.serving != "" {
				t.Errorf("%s translates: %+v, %v", name, got, err)
			}
		}
		asks := request{method: http.MethodOptions, port: webDoor, host: "plain.shop.test", path: healthv1.Health_Check_FullMethodName, header: map[string]string{
			"Origin": "https://shop.test", "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "content-type,x-grpc-web",
		}}
		if got := send(t, asks); got.status != 200 || got.header.Get("Access-Control-Allow-Headers") != "content-type,x-grpc-web" || got.header.Get("Access-Control-Allow-Origin") != "https://shop.test" {
			t.Errorf("a preflight gets %v %v", got, got.header)
		}
		s.expectNothingRejected()
		edge.expectNothingRejected()
		client.expectNothingRejected()
	})
}
