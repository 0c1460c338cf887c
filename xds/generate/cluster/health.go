package cluster

import (
	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/health"
	"github.com/portolan-mesh/portolan/xds/envoy/upstream"
)

// Services with one of these labels have persistent sessions. A client may then stay with
// its endpoint, named by a cookie or a header, while the endpoint drains.
const (
	persistentSessionLabel       = "istio.io/persistent-session"
	persistentSessionHeaderLabel = "istio.io/persistent-session-header"
)

// healths says whether unhealthy and draining endpoints are sent to proxies.
type healths struct {
	unhealthy, draining bool
	// least is the panic threshold: below this percentage of healthy endpoints the proxy
	// ignores health. It is 0 if unhealthy endpoints are sent.
	least float64
}

// healths returns which endpoints are sent. Unhealthy endpoints are sent as such, so that
// a proxy finishes their requests. If the policy has a panic threshold they are omitted,
// since a proxy in panic uses all endpoints that it knows. Draining endpoints are sent if
// the service has persistent sessions. (Istio: PILOT_AUTO_SEND_UNHEALTHY_ENDPOINTS.)
// https://github.com/istio/istio/pull/60690
func (o Outbound) healths() healths {
	l := o.Service.Service().Attributes.Labels
	least := o.Policy().GetOutlierDetection().GetMinHealthPercent()
	return healths{
		unhealthy: least <= 0, least: float64(max(least, 0)),
		draining: l[persistentSessionLabel] != "" || l[persistentSessionHeaderLabel] != "",
	}
}

// panicThreshold is 0 if unhealthy endpoints are sent: then a proxy must never use them,
// however many they are. With any other threshold, a proxy in panic also uses ejected
// endpoints.
func (h healths) panicThreshold() *float64 { return &h.least }

// statusOf returns the health that proxies get for an endpoint, and whether they get the
// endpoint.
func (h healths) statusOf(e *discovery.Endpoint) (status upstream.HealthStatus, sent bool) {
	switch e.Health {
	case discovery.Unhealthy:
		return upstream.Unhealthy, h.unhealthy
	case discovery.Draining:
		return upstream.Draining, h.draining
	}
	return 0, true
}

// check returns the HTTP health check of the endpoints, the zero Check for none. Only
// HTTP ports can answer it.
func (o Outbound) check() health.Check {
	if !o.Port.Protocol.IsHTTP() {
		return health.Check{}
	}
	return o.Service.Check
}

// healthCheck returns the check as an option of the cluster, nil for none.
func (o Outbound) healthCheck() *upstream.HealthCheck {
	check := o.check()
	if check == (health.Check{}) {
		return nil
	}
	return &upstream.HealthCheck{Host: string(o.Service.Hostname), Path: check.Path, Interval: check.Interval, HTTP2: o.Port.Protocol.IsHTTP2()}
}
