package health_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/portolan-mesh/portolan/cmd/portolan-agent/health"
	"github.com/portolan-mesh/portolan/xds/names/probe"
)

// machine is a workload and its proxy, by a clock of its own.
type machine struct {
	t      *testing.T
	prober *health.Prober
	began  time.Time

	mu       sync.Mutex
	workload error
	proxy    error
	checks   []string // when, and of which probe
	reports  []string
}

// newMachine runs a prober until the test ends. The second check comes after half a period.
func newMachine(t *testing.T, withProxy bool) *machine {
	m := &machine{t: t, began: time.Now()}
	o := health.Options{
		What: func(p *probe.Probe) string { return fmt.Sprint("port ", p.GetTcpSocket().GetPort()) },
		Check: func(_ context.Context, p *probe.Probe) error {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.checks = append(m.checks, fmt.Sprintf("%s port %d", time.Since(m.began), p.GetTcpSocket().GetPort()))
			return m.workload
		},
		Report: func(_ context.Context, healthy bool, why string) {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.reports = append(m.reports, strings.TrimSpace(fmt.Sprintf("%s %v %s", time.Since(m.began), healthy, why)))
		},
		Spread: func() float64 { return 0.5 },
	}
	if withProxy {
		o.Proxy = func(context.Context) error {
			m.mu.Lock()
			defer m.mu.Unlock()
			return m.proxy
		}
	}
	m.prober = health.New(o)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); m.prober.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	synctest.Wait()
	return m
}

func (m *machine) set(workload, proxy string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.workload, m.proxy = nil, nil
	if workload != "" {
		m.workload = errors.New(workload)
	}
	if proxy != "" {
		m.proxy = errors.New(proxy)
	}
}

// follow has the servers name a probe; nil for none.
func (m *machine) follow(p *probe.Probe) {
	m.t.Helper()
	if p == nil {
		m.prober.Follow(nil, []string{probe.Name})
	} else {
		body, err := anypb.New(p)
		if err != nil {
			m.t.Fatal(err)
		}
		m.prober.Follow([]*discoveryv3.Resource{{Name: probe.Name, Resource: body}}, nil)
	}
	synctest.Wait()
}

func (m *machine) wait(d time.Duration) {
	time.Sleep(d) // of the clock of the bubble
	synctest.Wait()
}

func (m *machine) expect(what string, reports ...string) {
	m.t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	if diff := cmp.Diff(reports, slices.Clone(m.reports)); diff != "" {
		m.t.Errorf("%s: reports (-want +got):\n%s", what, diff)
	}
	m.reports = nil
}

func probeOf(port uint32, period time.Duration, success, failure int32) *probe.Probe {
	return &probe.Probe{
		Origin: "workloadgroup/shop/web", InitialDelay: durationpb.New(0), Period: durationpb.New(period), Timeout: durationpb.New(time.Second),
		SuccessThreshold: success, FailureThreshold: failure, Check: &probe.Probe_TcpSocket{TcpSocket: &probe.Probe_TCPSocket{Port: port}},
	}
}

// TestThresholds: a state changes by as many results in turn as the probe demands, and only then
// is it reported.
func TestThresholds(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name             string
		success, failure int32
		results          string // a + for each success, a - for each failure
		want             string // the state after each: healthy, unhealthy, or ? for none
		reports          int
	}{
		{"one of each", 1, 1, "+-+--+", "huhuuh", 5},
		{"unhealthy at first", 1, 1, "-", "u", 1},
		{"three failures", 1, 3, "+--+---+", "hhhhhhuh", 3},
		{"two successes", 2, 1, "-+-++-", "uuuuhu", 3},
		{"nothing before enough results", 2, 3, "+-+--+++-", "??????hhh", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				m := newMachine(t, false)
				got, fails := "", func(r rune) {
					if m.set("", ""); r == '-' {
						m.set("refused", "")
					}
				}
				for i, r := range c.results {
					switch fails(r); i {
					case 0:
						m.follow(probeOf(1, 10*time.Second, c.success, c.failure))
					case 1:
						m.wait(5 * time.Second)
					default:
						m.wait(10 * time.Second)
					}
					got += map[health.State]string{health.Unknown: "?", health.Healthy: "h", health.Unhealthy: "u"}[m.prober.Status().State]
				}
				if got != c.want || len(m.reports) != c.reports || m.prober.Counts().Reports != uint64(c.reports) {
					t.Errorf("the states are %s, want %s; the reports are %v, want %d", got, c.want, m.reports, c.reports)
				}
				if n := m.prober.Counts(); n.Checks != uint64(len(c.results)) || n.Failures != uint64(strings.Count(c.results, "-")) {
					t.Errorf("the counts are %+v", n)
				}
			})
		})
	}
}

// TestWhenChecksAreMade: the first check comes after the initial delay, the second after a fraction
// of the period, and then one each period.
func TestWhenChecksAreMade(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t, false)
		p := probeOf(1, 10*time.Second, 1, 1)
		p.InitialDelay = durationpb.New(3 * time.Second)
		m.follow(p)
		m.wait(2 * time.Second)
		m.expect("before the first check")
		if err := m.prober.Problem(); err == nil || err.Error() != "the probe of workloadgroup/shop/web has no result yet" {
			t.Errorf("before the first check: %v", err)
		}
		m.wait(30 * time.Second)
		if diff := cmp.Diff([]string{"3s port 1", "8s port 1", "18s port 1", "28s port 1"}, m.checks); diff != "" {
			t.Errorf("checks (-want +got):\n%s", diff)
		}
		m.expect("only changes", "3s true")
	})
}

// TestTheProxyCounts: a workload is healthy while its proxy takes requests, too.
func TestTheProxyCounts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t, true)
		m.wait(time.Minute)
		m.expect("the proxy alone is not reported")
		m.follow(probeOf(1, 10*time.Second, 1, 1))
		m.expect("both", "1m0s true")
		m.set("", "the Envoy does not run")
		m.wait(time.Second)
		m.expect("a proxy that has ended is seen within a second", "1m1s false the Envoy does not run")
		m.set("", "")
		m.wait(time.Second)
		m.expect("it is back", "1m1.1s true")
		m.set("refused", "the Envoy does not run")
		m.wait(10 * time.Second)
		m.expect("both fail", "1m2.1s false the Envoy does not run")
		m.set("refused", "")
		m.wait(10 * time.Second)
		m.expect("the proxy is back, and the workload is not")
		m.set("", "")
		m.wait(10 * time.Second)
		m.expect("all is back", "1m25s true")
	})
}

// TestTheProbeChanges: an edited probe takes over at once and judges anew, from the state that the
// old one has found. Without a probe nothing is reported any more, and the machine is healthy.
func TestTheProbeChanges(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t, false)
		if m.prober.Status() != nil || m.prober.Problem() != nil {
			t.Error("without a probe there is a status")
		}
		m.follow(probeOf(1, 10*time.Second, 1, 1))
		m.expect("at first", "0s true")
		m.set("refused", "")
		m.follow(probeOf(2, 10*time.Second, 1, 2))
		m.expect("one failure of the edited probe")
		m.follow(probeOf(2, 10*time.Second, 1, 2)) // the same again, of another server
		m.wait(5 * time.Second)
		m.expect("two", "5s false refused")
		if err := m.prober.Problem(); err == nil || err.Error() != "the workload is unhealthy: refused" {
			t.Errorf("unhealthy: %v", err)
		}
		if s := m.prober.Status(); s.Probe != "port 2" || s.Origin != "workloadgroup/shop/web" || s.InTurn != 2 || s.Result != "refused" || s.Report == nil || s.Report.Healthy {
			t.Errorf("the status is %+v", s)
		}
		m.follow(nil)
		m.expect("removed", "5s true")
		checks := len(m.checks)
		m.wait(time.Hour)
		if m.expect("without"); len(m.checks) != checks || m.prober.Problem() != nil {
			t.Error("a probe that is gone is run")
		}
		m.follow(probeOf(3, time.Second, 1, 1))
		m.expect("another", "1h0m5s false refused")
		m.set("", "")
		m.wait(time.Second)
		m.expect("healthy", "1h0m5.5s true")
		m.follow(nil)
		m.wait(time.Hour)
		m.expect("one that is removed while healthy says nothing")
	})
}
