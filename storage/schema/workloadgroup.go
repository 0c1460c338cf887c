package schema

import (
	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/health"
)

func workloadGroup() *Schema {
	return definition[*networking.WorkloadGroup]{
		kind: WorkloadGroup, plural: "workloadgroups", shortName: "wg",
		codec:  config.Protobuf[networking.WorkloadGroup](),
		served: serve("metadata", "template", "probe"),
		check:  checkWorkloadGroup,
	}.schema()
}

func checkWorkloadGroup(c checker, g *networking.WorkloadGroup) {
	c.at("metadata", "labels").labels(g.GetMetadata().GetLabels())
	c.at("metadata", "annotations").annotations(g.GetMetadata().GetAnnotations())
	if _, named := g.GetMetadata().GetAnnotations()[health.ProbeAnnotation]; named {
		c.at("metadata", "annotations").key(health.ProbeAnnotation).fail("is for WorkloadEntries that no group makes: set spec.probe")
	}
	checkProxyConfigAnnotation(c.at("metadata", "annotations").key(ProxyConfigAnnotation), g.GetMetadata().GetAnnotations())
	if g.Template == nil {
		c.at("template").fail("is missing: it says what the WorkloadEntries of the group have alike")
	} else {
		checkWorkload(c.at("template"), g.Template)
	}
	checkProbe(c.at("probe"), g.Probe)
}

// checkProxyConfigAnnotation refuses a ProxyConfig that cannot be read, and warns of fields without
// effect.
func checkProxyConfigAnnotation(c checker, annotations map[string]string) {
	_, warnings, err := readProxyConfig(annotations)
	for _, fault := range config.Faults(err) {
		c.fail("%v", fault)
	}
	for _, warning := range warnings {
		c.notServed("%s", warning)
	}
}

func checkProbe(c checker, p *networking.ReadinessProbe) {
	if p == nil {
		return
	}
	c.at("initialDelaySeconds").notNegative(p.InitialDelaySeconds)
	c.at("timeoutSeconds").notNegative(p.TimeoutSeconds)
	c.at("periodSeconds").notNegative(p.PeriodSeconds)
	c.at("successThreshold").notNegative(p.SuccessThreshold)
	c.at("failureThreshold").notNegative(p.FailureThreshold)
	switch m := p.HealthCheckMethod.(type) {
	case nil:
		c.fail("lacks what to do: set one of httpGet, tcpSocket, exec, grpc")
	case *networking.ReadinessProbe_HttpGet:
		c.at("httpGet", "port").port(m.HttpGet.GetPort())
		c.at("httpGet", "scheme").oneOf(m.HttpGet.GetScheme(), "HTTP", "HTTPS")
		each(c.at("httpGet", "httpHeaders"), m.HttpGet.GetHttpHeaders(), func(c checker, h *networking.HTTPHeader) {
			c.at("name").headerName(h.GetName())
		})
	case *networking.ReadinessProbe_TcpSocket:
		c.at("tcpSocket", "port").port(m.TcpSocket.GetPort())
	case *networking.ReadinessProbe_Exec:
		if len(m.Exec.GetCommand()) == 0 {
			c.at("exec", "command").fail("is missing: name the program to run")
		}
	case *networking.ReadinessProbe_Grpc:
		c.at("grpc", "port").port(m.Grpc.GetPort())
	}
}

// DefaultServiceAccount is the service account of the workloads of a WorkloadGroup whose template
// names none, as in Istio.
const DefaultServiceAccount = "default"
