package simulate

import (
	"fmt"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
)

// Mirror is a cluster that gets copies of a share of the requests.
type Mirror struct {
	Cluster string
	Percent float64
}

// String describes the mirror, such as "10% to outbound|80||web.example.com".
func (m Mirror) String() string { return fmt.Sprintf("%v%% to %s", m.Percent, m.Cluster) }

func mirrors(a *routev3.RouteAction) []Mirror {
	var out []Mirror
	for _, m := range a.GetRequestMirrorPolicies() {
		share := 100.0
		if f := m.GetRuntimeFraction(); f != nil {
			share = percent(f.GetDefaultValue())
		}
		out = append(out, Mirror{Cluster: m.GetCluster(), Percent: share})
	}
	return out
}
