package consul

import (
	"github.com/prometheus/client_golang/prometheus"
)

type metrics struct {
	requests *prometheus.CounterVec
	failures *prometheus.CounterVec
}

var (
	upDesc       = prometheus.NewDesc("portolan_consul_up", "1 while the catalogue of Consul can be read.", []string{"datacenter"}, nil)
	degradedDesc = prometheus.NewDesc("portolan_consul_degraded", "1 while what is known of Consul may be old; /readyz says why.", []string{"datacenter"}, nil)
	stateDesc    = prometheus.NewDesc("portolan_consul_state", "1 for the state that a datacentre is in: syncing, synced or degraded.", []string{"datacenter", "state"}, nil)
	queriesDesc  = prometheus.NewDesc("portolan_consul_queries", "Queries that wait in Consul.", []string{"datacenter", "by"}, nil)
	servicesDesc = prometheus.NewDesc("portolan_consul_services", "Services that are known.", []string{"datacenter"}, nil)
	keptDesc     = prometheus.NewDesc("portolan_consul_kept_instances", "Instances that are served although Consul does not have, or show, them any more.", []string{"datacenter"}, nil)
	leftOutDesc  = prometheus.NewDesc("portolan_consul_left_out", "Services and instances that cannot be in the mesh.", nil, nil)
)

func newMetrics(registerer prometheus.Registerer, r *Registry) *metrics {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "portolan_consul_requests_total", Help: "Requests to Consul, by query.",
		}, []string{"query"}),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "portolan_consul_request_failures_total", Help: "Requests to Consul that failed.",
		}, []string{"datacenter"}),
	}
	if registerer != nil {
		registerer.MustRegister(m.requests, m.failures, collector{r})
	}
	return m
}

// collector exports the state of a registry as metrics.
type collector struct{ r *Registry }

// Describe implements prometheus.Collector.
func (c collector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{upDesc, degradedDesc, stateDesc, queriesDesc, servicesDesc, keptDesc, leftOutDesc} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (c collector) Collect(out chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	status := c.r.Status()
	for i, d := range status.Datacenters {
		gauge(upDesc, gaugeOf(c.r.datacenters[i].isUp()), d.Name)
		gauge(degradedDesc, gaugeOf(d.Degraded != ""), d.Name)
		for _, state := range []string{StateSyncing, StateSynced, StateDegraded} {
			gauge(stateDesc, gaugeOf(d.State == state), d.Name, state)
		}
		gauge(queriesDesc, float64(d.Queries), d.Name, d.By)
		gauge(servicesDesc, float64(d.Services), d.Name)
		gauge(keptDesc, float64(d.Kept), d.Name)
	}
	leftOut := 0
	for _, f := range status.Flaws {
		if f.LeftOut {
			leftOut++
		}
	}
	gauge(leftOutDesc, float64(leftOut))
}

func gaugeOf(holds bool) float64 {
	if holds {
		return 1
	}
	return 0
}
