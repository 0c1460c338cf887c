package serve

import (
	"github.com/prometheus/client_golang/prometheus"
)

// trouble is what is wrong with a source, nil for nothing.
type trouble struct {
	source string
	err    error
}

// troubles returns what is wrong with each source of configuration but the store, and with the
// services and the secrets of each cluster. Names are those of SourcesPath. Other registries have
// metrics of their own.
func (s *server) troubles() (out []trouble) {
	if s.sources != nil {
		for _, state := range s.sources.States() {
			out = append(out, trouble{state.Name, state.Err})
		}
	}
	for _, of := range s.kubernetes.Registries() {
		out = append(out, trouble{clusterServices + of.Cluster(), of.Degraded()})
	}
	for _, of := range s.kubeSecrets.Status() {
		out = append(out, trouble{clusterSecrets + of.Cluster, of.Degraded})
	}
	return out
}

var degradedDesc = prometheus.NewDesc("portolan_source_degraded",
	"1 if something is wrong with a source of configuration, or with the services or secrets of a cluster: what it last had is served.", []string{"source"}, nil)

// sourceMetrics are the metrics of sources.
type sourceMetrics struct{ server *server }

// Describe implements prometheus.Collector.
func (m sourceMetrics) Describe(out chan<- *prometheus.Desc) { out <- degradedDesc }

// Collect implements prometheus.Collector.
func (m sourceMetrics) Collect(out chan<- prometheus.Metric) {
	for _, of := range m.server.troubles() {
		degraded := 0.0
		if of.err != nil {
			degraded = 1
		}
		out <- prometheus.MustNewConstMetric(degradedDesc, prometheus.GaugeValue, degraded, of.source)
	}
}
