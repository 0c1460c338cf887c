package xds_test

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/portolan-mesh/portolan/storage/logtest"
	"github.com/portolan-mesh/portolan/xds"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/generate/catalogue"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// connecting is a DestinationRule that gives connections to the service a some seconds to
// open.
const connecting = `apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: a, namespace: shop}
spec: {host: a.shop.example, trafficPolicy: {connectionPool: {tcp: {connectTimeout: %ds}}}}
`

// TestARepeatedRejectionIsLoggedOnce: if a proxy rejects each change for the same reason,
// the server counts each rejection, and logs only the first.
func TestARepeatedRejectionIsLoggedOnce(t *testing.T) {
	t.Parallel()
	const changes, reason = 10, "no filter named portolan.test"
	variants(t, func(t *testing.T, v protocol.Variant) {
		registry, log := prometheus.NewRegistry(), &logtest.Log{}
		s := xdstest.NewServer(t, catalogue.Types(), func(o *xds.Options) {
			o.Registerer, o.Logger = registry, slog.New(slog.NewTextHandler(log, nil))
		})
		c := xdstest.Dial(t, s.Address, xdstest.ClientOptions{Node: node("10.0.0.1"), Variant: v, Manual: true})
		published(t, s, s.Apply(service("a", 9080, "10.1.0.1")))
		c.Subscribe(xdstest.ClusterType)
		c.Ack(c.AwaitAnswer(xdstest.ClusterType, 0))
		for i := range changes + 1 {
			published(t, s, s.Apply(fmt.Sprintf(connecting, i+1)))
			words := reason
			if i == changes {
				words = strings.Repeat("y", 1<<20)
			}
			c.Nack(c.AwaitAnswer(xdstest.ClusterType, i+1), words)
		}
		xdstest.Eventually(t, "all rejections are counted", func() bool {
			return sum(t, registry, "portolan_xds_rejections_total") == changes+1
		})
		// Once for the response, and once for the resource that is found in it.
		if n := strings.Count(log.String(), reason); n < 1 || n > 2 {
			t.Errorf("logged %d times: want twice at most\n%.3000s", n, log.String())
		}
		if n := len(log.String()); n > 16<<10 {
			t.Errorf("the log has %d bytes", n)
		}
	})
}

// sum adds up the counters of a metric.
func sum(t *testing.T, registry *prometheus.Registry, name string) (n float64) {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name {
				n += m.GetCounter().GetValue()
			}
		}
	}
	return n
}

// TestWhatAClientSaysOfItselfIsBounded: the node, and the types that it makes up.
func TestWhatAClientSaysOfItselfIsBounded(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 2<<20)
	for what, say := range map[string]func(o *xdstest.ClientOptions) (typeURL string){
		"node": func(o *xdstest.ClientOptions) string {
			o.Node.UserAgentName = long
			return xdstest.ClusterType
		},
		"type_url": func(*xdstest.ClientOptions) string { return long },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			variants(t, func(t *testing.T, v protocol.Variant) {
				s := xdstest.NewServer(t, catalogue.Types())
				o := xdstest.ClientOptions{Node: node("10.0.0.1"), Variant: v}
				typeURL := say(&o)
				c := xdstest.Dial(t, s.Address, o)
				c.Subscribe(typeURL)
				if err := c.AwaitEnd(); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), what) {
					t.Errorf("the stream ended with %v", err)
				}
			})
		})
	}
}
