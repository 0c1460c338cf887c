package registration

import (
	"cmp"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/portolan-mesh/portolan/discovery/node"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/status"
)

// Outcome is what has become of the registration that one stream asks for. It is comparable.
type Outcome struct {
	Group config.Key
	Entry config.Key
	Node  string
	State node.State
	// Reason says why the state is what it is. Of a registered proxy it names what its entry
	// does not have; it is empty if that has all.
	Reason string
	// Since is when the stream began.
	Since time.Time
}

// outcomes returns the outcome of each stream that has one.
func (c *claim) outcomes() []Outcome {
	var out []Outcome
	for _, s := range c.streams {
		if s.state != "" {
			out = append(out, Outcome{Group: groupOf(s.proxy), Entry: c.key, Node: s.proxy.ID, State: s.state, Reason: s.reason, Since: s.since})
		}
	}
	return out
}

// Outcomes returns what has become of the registrations that all connected proxies ask for,
// ordered by group, entry and beginning.
func (r *Registrar) Outcomes() []Outcome {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []Outcome
	for _, c := range r.claims {
		out = append(out, c.outcomes()...)
	}
	slices.SortFunc(out, func(a, b Outcome) int {
		return cmp.Or(cmp.Compare(a.Group.Path(), b.Group.Path()), cmp.Compare(a.Entry.Path(), b.Entry.Path()), a.Since.Compare(b.Since), cmp.Compare(a.Node, b.Node))
	})
	return out
}

// Report returns the outcomes in which something is wrong: registrations that were refused or that
// wait, and entries that lack what their proxies asked for. It names limit of them at most, the
// first of each reason before others.
func (r *Registrar) Report(limit int) []status.Registration {
	var first, more []status.Registration
	seen := map[[2]string]bool{}
	for _, o := range r.Outcomes() {
		if o.Reason == "" || o.State == node.Replaced || o.State == node.Departed {
			continue
		}
		one := status.Registration{Group: o.Group.Path(), Node: o.Node, Registered: o.State == node.Registered, Reason: o.Reason}
		if kind := [2]string{one.Group, one.Reason}; !seen[kind] {
			seen[kind] = true
			first = append(first, one)
		} else {
			more = append(more, one)
		}
	}
	all := append(first, more...)
	return all[:min(len(all), limit)]
}

// ChangeCount changes whenever Outcomes may have changed.
func (r *Registrar) ChangeCount() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.changed
}

type metrics struct{ registered, refused, reports prometheus.Counter }

func newMetrics(to prometheus.Registerer, r *Registrar) *metrics {
	with := promauto.With(to)
	with.NewGaugeFunc(prometheus.GaugeOpts{Name: "portolan_registered_proxies", Help: "Connected proxies whose WorkloadEntry this server keeps."}, func() float64 {
		n := 0
		for _, o := range r.Outcomes() {
			if o.State == node.Registered {
				n++
			}
		}
		return float64(n)
	})
	return &metrics{
		registered: with.NewCounter(prometheus.CounterOpts{Name: "portolan_registrations_total", Help: "WorkloadEntries that this server wrote for proxies that asked to be registered."}),
		refused:    with.NewCounter(prometheus.CounterOpts{Name: "portolan_registrations_refused_total", Help: "Registrations that this server refused."}),
		reports:    with.NewCounter(prometheus.CounterOpts{Name: "portolan_machine_health_reports_total", Help: "Reports of the health of machines that this server took from their streams and stored."}),
	}
}
