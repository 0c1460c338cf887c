// Package probe makes the probe of a workload, for the agent of its machine: that of the
// WorkloadGroup that the proxy names, or of the workload's own WorkloadEntry. Others have none.
package probe

import (
	"cmp"
	"iter"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/xds/generate"
	"github.com/portolan-mesh/portolan/xds/mesh"
	message "github.com/portolan-mesh/portolan/xds/names/probe"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// Generator makes the one resource of a workload.
type Generator struct{}

var (
	_ generate.Generator   = Generator{}
	_ generate.Gatewayless = Generator{}
)

// TypeURL implements generate.Generator.
func (Generator) TypeURL() string { return message.Type }

// Gatewayless implements generate.Gatewayless.
func (Generator) Gatewayless() {}

// Affected implements generate.Generator.
func (Generator) Affected(v *mesh.View, d mesh.Delta) iter.Seq[string] {
	return func(yield func(string) bool) {
		if d.Whole && v.Probe() != nil {
			yield(message.Name)
		}
	}
}

// Build implements generate.Generator.
func (Generator) Build(v *mesh.View, name string) (proto.Message, []resource.Need, error) {
	if name != message.Name {
		return nil, nil, nil
	}
	row := v.Probe()
	if row == nil {
		return nil, nil, nil
	}
	return messageOf(row), nil, nil
}

// The defaults of Kubernetes, but for the threshold of failures, which is Istio's.
// (Istio: pkg/istio-agent/health/health_check.go, fillInDefaults.)
const (
	defaultTimeout   = 1
	defaultPeriod    = 10
	defaultThreshold = 1
	defaultPath      = "/"
)

func messageOf(row *mesh.ProbeRow) *message.Probe {
	p := row.Probe
	out := &message.Probe{
		Origin:           row.Object.String(),
		InitialDelay:     seconds(p.GetInitialDelaySeconds()),
		Period:           seconds(cmp.Or(p.GetPeriodSeconds(), defaultPeriod)),
		Timeout:          seconds(cmp.Or(p.GetTimeoutSeconds(), defaultTimeout)),
		SuccessThreshold: cmp.Or(p.GetSuccessThreshold(), defaultThreshold),
		FailureThreshold: cmp.Or(p.GetFailureThreshold(), defaultThreshold),
	}
	switch m := p.GetHealthCheckMethod().(type) {
	case *networking.ReadinessProbe_HttpGet:
		get := &message.Probe_HTTPGet{
			Host: m.HttpGet.GetHost(), Port: m.HttpGet.GetPort(), Path: cmp.Or(m.HttpGet.GetPath(), defaultPath),
			Tls: strings.EqualFold(m.HttpGet.GetScheme(), "https"),
		}
		for _, h := range m.HttpGet.GetHttpHeaders() {
			get.Headers = append(get.Headers, &message.Probe_Header{Name: h.GetName(), Value: h.GetValue()})
		}
		out.Check = &message.Probe_HttpGet{HttpGet: get}
	case *networking.ReadinessProbe_TcpSocket:
		out.Check = &message.Probe_TcpSocket{TcpSocket: &message.Probe_TCPSocket{Host: m.TcpSocket.GetHost(), Port: m.TcpSocket.GetPort()}}
	case *networking.ReadinessProbe_Exec:
		out.Check = &message.Probe_Exec_{Exec: &message.Probe_Exec{Command: m.Exec.GetCommand()}}
	case *networking.ReadinessProbe_Grpc:
		out.Check = &message.Probe_Grpc{Grpc: &message.Probe_GRPC{Port: m.Grpc.GetPort(), Service: m.Grpc.GetService()}}
	}
	return out
}

func seconds(n int32) *durationpb.Duration { return durationpb.New(time.Duration(n) * time.Second) }
