package member

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/portolan-mesh/portolan/storage/etcd/cluster"
)

// The metrics of a store in a child and in process; package upkeep has the rest.
var (
	upDesc = prometheus.NewDesc("portolan_store_up",
		"1 while the embedded store runs and answers.", nil, nil)
	restartsDesc = prometheus.NewDesc("portolan_store_restarts_total",
		"Attempts to start the store process again since the server started.", nil, nil)
	membersDesc = prometheus.NewDesc("portolan_store_members",
		"Members of the store by their role, as this server sees them.", []string{"status"}, nil)
)

// upMetric is 1 for true.
func upMetric(healthy bool) prometheus.Metric {
	value := 0.0
	if healthy {
		value = 1
	}
	return prometheus.MustNewConstMetric(upDesc, prometheus.GaugeValue, value)
}

// Describe implements prometheus.Collector. Register a Child after Start.
func (c *Child) Describe(out chan<- *prometheus.Desc) {
	out <- upDesc
	out <- restartsDesc
	out <- membersDesc
	c.keeper.Describe(out)
}

// Collect implements prometheus.Collector.
func (c *Child) Collect(out chan<- prometheus.Metric) {
	out <- upMetric(c.Healthy())
	out <- prometheus.MustNewConstMetric(restartsDesc, prometheus.CounterValue, float64(c.restarts.Load()))
	if c.peers != nil {
		c.peers.collect(out)
	}
	c.keeper.Collect(out)
}

// Describe implements prometheus.Collector.
func (m *Member) Describe(out chan<- *prometheus.Desc) {
	out <- upDesc
	m.keeper.Describe(out)
}

// Collect implements prometheus.Collector.
func (m *Member) Collect(out chan<- prometheus.Metric) {
	out <- upMetric(m.Healthy())
	m.keeper.Collect(out)
}

// collect counts the members.
func (p *peers) collect(out chan<- prometheus.Metric) {
	s := p.seen.Load()
	if s == nil || s.view == nil {
		return
	}
	count := map[cluster.Status]int{}
	for i := range s.view.Members {
		count[s.view.Members[i].Status()]++
	}
	for _, status := range cluster.Statuses {
		out <- prometheus.MustNewConstMetric(membersDesc, prometheus.GaugeValue, float64(count[status]), string(status))
	}
}
