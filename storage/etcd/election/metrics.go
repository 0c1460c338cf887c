package election

import "github.com/prometheus/client_golang/prometheus"

// metrics say which process leads, and how often that changes.
type metrics struct{ leader, terms *prometheus.Desc }

func newMetrics(name string) *metrics {
	job := prometheus.Labels{"job": name}
	return &metrics{
		leader: prometheus.NewDesc("portolan_leader",
			"1 while this server does the jobs that one server of a store does at a time.", nil, job),
		terms: prometheus.NewDesc("portolan_leader_terms_total",
			"How often this server has begun to do them.", nil, job),
	}
}

// Describe implements prometheus.Collector.
func (e *Election) Describe(out chan<- *prometheus.Desc) {
	out <- e.metrics.leader
	out <- e.metrics.terms
}

// Collect implements prometheus.Collector.
func (e *Election) Collect(out chan<- prometheus.Metric) {
	leading := 0.0
	if e.leading.Load() != 0 {
		leading = 1
	}
	out <- prometheus.MustNewConstMetric(e.metrics.leader, prometheus.GaugeValue, leading)
	out <- prometheus.MustNewConstMetric(e.metrics.terms, prometheus.CounterValue, float64(e.terms.Load()))
}
