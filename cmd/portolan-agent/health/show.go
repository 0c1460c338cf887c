package health

import (
	"fmt"
	"io"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Print writes rows of a table for people; ago formats a time.
func (s *Status) Print(w io.Writer, ago func(time.Time) string) {
	since := ""
	if !s.Since.IsZero() {
		since = ", since " + ago(s.Since)
	}
	_, _ = fmt.Fprintf(w, "health\t%s%s: %s, of %s\n", s.State, since, s.Probe, s.Origin)
	switch {
	case s.At.IsZero():
		_, _ = fmt.Fprint(w, "last check\tnone yet\n")
	case s.Result == "":
		_, _ = fmt.Fprintf(w, "last check\t%s: success, %d in turn\n", ago(s.At), s.InTurn)
	default:
		_, _ = fmt.Fprintf(w, "last check\t%s: failure, %d in turn: %s\n", ago(s.At), s.InTurn, s.Result)
	}
	switch r := s.Report; {
	case r == nil:
		_, _ = fmt.Fprint(w, "last report\tnone yet\n")
	case r.Healthy:
		_, _ = fmt.Fprintf(w, "last report\t%s: healthy\n", ago(r.At))
	default:
		_, _ = fmt.Fprintf(w, "last report\t%s: unhealthy: %s\n", ago(r.At), r.Why)
	}
}

// Register adds the metrics of the probe.
func (p *Prober) Register(to prometheus.Registerer) {
	counter := func(name, text string, value func(Counts) uint64) {
		to.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "portolan_agent_" + name, Help: text},
			func() float64 { return float64(value(p.Counts())) }))
	}
	counter("probe_checks_total", "Checks of the workload by its probe.", func(c Counts) uint64 { return c.Checks })
	counter("probe_failures_total", "Checks of the workload that failed.", func(c Counts) uint64 { return c.Failures })
	counter("health_reports_total", "Changes of the workload's health that were reported to the servers.", func(c Counts) uint64 { return c.Reports })
	to.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "portolan_agent_healthy", Help: "0 if the last report says that the workload is unhealthy, else 1."}, func() float64 {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.last != nil && !p.last.Healthy {
			return 0
		}
		return 1
	}))
}
