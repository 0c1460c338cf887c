package xds_test

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/portolan-mesh/portolan/storage/logtest"
	"github.com/portolan-mesh/portolan/xds"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/generate/catalogue"
	"github.com/portolan-mesh/portolan/xds/progress"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// TestALimitThatPassesIsReported: a route to a cluster that the proxy does not acknowledge
// shows as waiting. When it has waited for too long, it goes out though nothing else
// happens. The server logs, counts and shows that.
func TestALimitThatPassesIsReported(t *testing.T) {
	t.Parallel()
	variants(t, func(t *testing.T, v protocol.Variant) {
		registry, log := prometheus.NewRegistry(), &logtest.Log{}
		s := xdstest.NewServer(t, catalogue.Types(), func(o *xds.Options) {
			o.Registerer, o.Logger = registry, slog.New(slog.NewTextHandler(log, nil))
			o.ReadyLimit = 300 * time.Millisecond
		})
		published(t, s, s.Apply(service("a", 9080, "10.1.0.1"), route("a", "a")))
		c := xdstest.Dial(t, s.Address, xdstest.ClientOptions{Node: node("10.0.0.1"), Variant: v, Manual: true})
		routes := func() progress.TypeStatus {
			for _, p := range s.XDS.Proxies() {
				for _, st := range p.Types {
					if st.Name == "RDS" {
						return st
					}
				}
			}
			return progress.TypeStatus{}
		}
		c.Subscribe(xdstest.ClusterType)
		c.AwaitAnswer(xdstest.ClusterType, 0)
		c.Subscribe(xdstest.RouteType, "9080")
		xdstest.Eventually(t, "the route to wait, or to have waited", func() bool { return routes().Waiting+routes().Late > 0 })
		c.AwaitAnswer(xdstest.RouteType, 0)
		xdstest.Eventually(t, "the status", func() bool { return routes().Late == 1 && routes().Waiting == 0 })
		if n := counted(t, registry, "portolan_xds_late_clusters_total"); n != 1 {
			t.Errorf("counted %v times", n)
		}
		for _, part := range []string{"level=WARN", "9080", "missing="} {
			if !strings.Contains(log.String(), part) {
				t.Errorf("%q is not in the log:\n%s", part, log)
			}
		}
	})
}
