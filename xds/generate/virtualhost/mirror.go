package virtualhost

import (
	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/xds/envoy"
)

// mirrors describes where a route's requests are mirrored to. Without a percentage, all
// requests are mirrored.
func (t translator) mirrors(http *networking.HTTPRoute) []envoy.Mirror {
	var out []envoy.Mirror
	add := func(d *networking.Destination, percentage float64) {
		if d != nil && percentage > 0 {
			out = append(out, envoy.Mirror{Cluster: t.destination(d).cluster(), Percentage: percentage})
		}
	}
	if d := http.GetMirror(); d != nil {
		add(d, mirrorPercentage(http))
	}
	for _, m := range http.GetMirrors() {
		percentage := 100.0
		if m.GetPercentage() != nil {
			percentage = m.GetPercentage().GetValue()
		}
		add(m.GetDestination(), percentage)
	}
	return out
}

// mirrorPercentage is the percentage of requests for a route's field mirror.
func mirrorPercentage(http *networking.HTTPRoute) float64 {
	if p := http.GetMirrorPercentage(); p != nil {
		return p.GetValue()
	}
	//lint:ignore SA1019 Istio takes the deprecated field still.
	if p := http.GetMirrorPercent(); p != nil {
		return float64(p.GetValue())
	}
	return 100
}
