package upkeep

import (
	"github.com/prometheus/client_golang/prometheus"
)

// metrics say how large the store is, how much room it has, and how long
// defragmentations stopped it.
type metrics struct {
	defrag prometheus.Histogram

	free, size, inUse, quota, compacted, alarm *prometheus.Desc
}

func newMetrics() *metrics {
	describe := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("portolan_store_"+name, help, labels, nil)
	}
	return &metrics{
		defrag: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "portolan_store_defrag_seconds",
			Help:    "Time of each defragmentation, during which the store answered nobody.",
			Buckets: prometheus.ExponentialBuckets(0.05, 4, 6),
		}),
		free:      describe("free_bytes", "Free space of the file system that the store is on."),
		size:      describe("db_bytes", "Size of the store's database file, which the quota bounds."),
		inUse:     describe("db_in_use_bytes", "Part of the database file that holds data."),
		quota:     describe("quota_bytes", "Size at which the store takes no more writes."),
		compacted: describe("compacted_revision", "Revision that the store was last compacted to, as far as this server knows; absent before the first time."),
		alarm:     describe("alarm", "1 while the store has raised the alarm: NOSPACE is a used up quota, CORRUPT damaged data.", "alarm"),
	}
}

// Describe implements prometheus.Collector.
func (k *Keeper) Describe(out chan<- *prometheus.Desc) {
	m := k.metrics
	m.defrag.Describe(out)
	for _, d := range []*prometheus.Desc{m.free, m.size, m.inUse, m.quota, m.compacted, m.alarm} {
		out <- d
	}
}

// Collect implements prometheus.Collector. It reports the result of the last look.
func (k *Keeper) Collect(out chan<- prometheus.Metric) {
	m := k.metrics
	m.defrag.Collect(out)
	gauge := func(d *prometheus.Desc, v int64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(v), labels...)
	}
	if space := k.Space(); space != nil {
		gauge(m.free, space.Free)
	}
	s := k.Status()
	if s == nil {
		return
	}
	gauge(m.size, s.Size)
	gauge(m.inUse, s.InUse)
	gauge(m.quota, s.Quota)
	if s.Compacted > 0 {
		gauge(m.compacted, s.Compacted)
	}
	for _, kind := range alarmKinds {
		var raised int64
		if s.Alarmed(kind) {
			raised = 1
		}
		gauge(m.alarm, raised, kind)
	}
}
