package index

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/portolan-mesh/portolan/xds/verdict"
)

var _ prometheus.Collector = (*Keeper)(nil)

var countOf = prometheus.NewDesc("portolan_verdicts",
	"What is odd about stored objects beside each other, by code: the number of fields or objects concerned.", []string{"code", "severity"}, nil)

// Describe implements prometheus.Collector.
func (k *Keeper) Describe(ch chan<- *prometheus.Desc) { ch <- countOf }

// Collect implements prometheus.Collector. It sends nothing before the first commit.
func (k *Keeper) Collect(ch chan<- prometheus.Metric) {
	x := k.Index()
	if x == nil {
		return
	}
	for kind := range verdict.Kinds() {
		ch <- prometheus.MustNewConstMetric(countOf, prometheus.GaugeValue, float64(x.Count(kind.Code)), string(kind.Code), kind.Severity.String())
	}
}
