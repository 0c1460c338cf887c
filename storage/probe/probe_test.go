package probe_test

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/storage/health"
	"github.com/portolan-mesh/portolan/storage/probe"
)

func TestOf(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		annotations map[string]string
		want        *networking.ReadinessProbe
		err         string
	}{
		"none": {map[string]string{health.ChecksAnnotation: "true"}, nil, ""},
		"in one line": {
			map[string]string{health.ProbeAnnotation: "{tcpSocket: {port: 80}, periodSeconds: 2}"},
			&networking.ReadinessProbe{PeriodSeconds: 2, HealthCheckMethod: &networking.ReadinessProbe_TcpSocket{TcpSocket: &networking.TCPHealthCheckConfig{Port: 80}}}, "",
		},
		"in lines": {
			map[string]string{health.ProbeAnnotation: "httpGet:\n  port: 80\n  path: /ready\n"},
			&networking.ReadinessProbe{HealthCheckMethod: &networking.ReadinessProbe_HttpGet{HttpGet: &networking.HTTPHealthCheckConfig{Port: 80, Path: "/ready"}}}, "",
		},
		"no YAML":       {map[string]string{health.ProbeAnnotation: "{"}, nil, "such as {httpGet: {port: 8080}}: yaml: "},
		"an odd field":  {map[string]string{health.ProbeAnnotation: "{udp: 5}"}, nil, `unknown field "udp"`},
		"twice a field": {map[string]string{health.ProbeAnnotation: "grpc: {port: 1}\ngrpc: {port: 2}"}, nil, `"grpc" already set`},
		"two methods":   {map[string]string{health.ProbeAnnotation: "{grpc: {port: 1}, tcpSocket: {port: 2}}"}, nil, "already set"},
	} {
		got, err := probe.Of(c.annotations)
		if (got == nil) != (c.want == nil) || got != nil && !proto.Equal(got, c.want) {
			t.Errorf("%s: %v", name, got)
		}
		if (err != nil) != (c.err != "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
