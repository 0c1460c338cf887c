package cluster

import (
	"github.com/portolan-mesh/portolan/discovery"
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
}

// healths: unhealthy endpoints are sent as such, so that a proxy goes on with
// the requests that they have, unless the policy asks for a panic threshold: in
// panic a proxy uses all endpoints that it knows. Those that drain are sent where
// clients may stay with them. (Istio: PILOT_AUTO_SEND_UNHEALTHY_ENDPOINTS.)
func (o Outbound) healths() healths {
	l := o.Service.Service().Attributes.Labels
	return healths{
		unhealthy: o.Policy().GetOutlierDetection().GetMinHealthPercent() <= 0,
		draining:  l[persistentSessionLabel] != "" || l[persistentSessionHeaderLabel] != "",
	}
}

// panicThreshold is none where unhealthy endpoints are sent: a proxy must never
// use them, however many they are.
func (h healths) panicThreshold() *float64 {
	if !h.unhealthy {
		return nil
	}
	return new(float64)
}

// statusOf is what a proxy is told of an endpoint, if it is sent.
func (h healths) statusOf(e *discovery.Endpoint) (status envoy.HealthStatus, sent bool) {
	switch e.Health {
	case discovery.Unhealthy:
		return envoy.Unhealthy, h.unhealthy
	case discovery.Draining:
		return envoy.Draining, h.draining
	}
	return 0, true
}
