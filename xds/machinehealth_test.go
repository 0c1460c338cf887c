package xds_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/xds"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/generate/catalogue"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// told notes what a server tells its Registrar.
type told struct {
	mu    sync.Mutex
	calls []string
}

func (r *told) Join(p *discovery.Proxy) discovery.Registration {
	r.note("join " + p.Name + " " + p.Group)
	return r
}

func (r *told) Report(healthy bool, message string) {
	r.note(fmt.Sprintf("report %v %s", healthy, message))
}
func (r *told) Depart(message string) { r.note("depart " + message) }
func (r *told) Leave()                { r.note("leave") }

func (r *told) note(call string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, call)
}

func (r *told) all() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.calls)
}

// TestWhatAMachineSaysOfItsHealth: the Registrar is told of each report, in order, also of one that
// is the first request of a stream. No report is answered, and the stream goes on.
func TestWhatAMachineSaysOfItsHealth(t *testing.T) {
	t.Parallel()
	variants(t, func(t *testing.T, v protocol.Variant) {
		registrar := &told{}
		s := xdstest.NewServer(t, catalogue.Types(), func(o *xds.Options) { o.Registrar = registrar })
		settledAt := s.Apply(service("a", 8080, "10.1.0.1"))
		c := xdstest.Dial(t, s.Address, xdstest.ClientOptions{Node: node("10.0.0.1"), Variant: v, Follow: true})
		c.Report(codes.OK, "")
		c.Subscribe(xdstest.ClusterType)
		c.Subscribe(xdstest.ListenerType)
		settled(t, s, settledAt)
		c.Report(codes.Internal, "503")
		c.Report(codes.OK, "")
		c.Report(codes.Canceled, "stopping")
		want := []string{"join client ", "report true ", "report false 503", "report true ", "depart stopping"}
		xdstest.Eventually(t, "all reports", func() bool { return len(registrar.all()) >= len(want) })
		if got := registrar.all(); !slices.Equal(got, want) {
			t.Errorf("the registrar is told %q, want %q", got, want)
		}
		if got := c.Answers("type.googleapis.com/istio.v1.HealthInformation"); len(got) != 0 {
			t.Errorf("%d reports were answered", len(got))
		}
		settled(t, s, s.Apply(service("a", 8080, "10.1.0.2")))
		c.Close()
		xdstest.Eventually(t, "the end of the stream", func() bool { return slices.Equal(registrar.all(), append(want, "leave")) })
	})
}
