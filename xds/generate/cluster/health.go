package cluster

import (
	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/health"
	"github.com/portolan-mesh/portolan/xds/envoy"
)

// The labels of a service whose clients may stay with the endpoint that they
// have, named by a cookie or by a header, while that drains.
const (
	persistentSessionLabel       = "istio.io/persistent-session"
	persistentSessionHeaderLabel = "istio.io/persistent-session-header"
)

// healths says which endpoints are sent that are not healthy.
type healths struct {
	unhealthy, draining bool
	// least is the percentage of healthy endpoints below which health is ignored, where
	// unhealthy endpoints are not sent.
	least float64
}

// healths: unhealthy endpoints are sent as such, so that a proxy finishes their
// requests. They are left out if the policy has a panic threshold, since a proxy in
// panic uses all endpoints that it knows. Draining endpoints are sent if clients may
// stay with them. (Istio: PILOT_AUTO_SEND_UNHEALTHY_ENDPOINTS.)
func (o Outbound) healths() healths {
	l := o.Service.Service().Attributes.Labels
	least := o.Policy().GetOutlierDetection().GetMinHealthPercent()
	return healths{
		unhealthy: least <= 0, least: float64(max(least, 0)),
		draining: l[persistentSessionLabel] != "" || l[persistentSessionHeaderLabel] != "",
	}
}

// panicThreshold is 0 where unhealthy endpoints are sent: a proxy must never use them,
// however many they are. Below any other it uses ejected endpoints, too.
func (h healths) panicThreshold() *float64 { return &h.least }

// statusOf returns the health that a proxy gets for an endpoint, and whether it is
// sent.
func (h healths) statusOf(e *discovery.Endpoint) (status envoy.HealthStatus, sent bool) {
	switch e.Health {
	case discovery.Unhealthy:
		return envoy.Unhealthy, h.unhealthy
	case discovery.Draining:
		return envoy.Draining, h.draining
	}
	return 0, true
}

// check is the check by HTTP of the endpoints, the zero Check for none. A port of another
// protocol would not answer.
func (o Outbound) check() health.Check {
	if !o.Port.Protocol.IsHTTP() {
		return health.Check{}
	}
	return o.Service.Check
}

// healthCheck is check for the cluster, nil for none.
func (o Outbound) healthCheck() *envoy.HealthCheck {
	check := o.check()
	if check == (health.Check{}) {
		return nil
	}
	return &envoy.HealthCheck{Host: string(o.Service.Hostname), Path: check.Path, Interval: check.Interval, HTTP2: o.Port.Protocol.IsHTTP2()}
}
