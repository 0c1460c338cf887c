package xds

import (
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// metrics are the metrics of the DiscoveryServer, each named after a question.
type metrics struct {
	pushes     *prometheus.CounterVec
	responses  *prometheus.CounterVec
	resources  *prometheus.CounterVec
	rejections *prometheus.CounterVec
	lates      *prometheus.CounterVec
	refused    prometheus.Counter
	buildTime  prometheus.Histogram
	ackTime    prometheus.Histogram
	begun      *lru.Cache[int64, time.Time] // by revision: when it woke the pusher
}

// keptRevisions bounds how many revisions are timed at one time.
const keptRevisions = 1024

func newMetrics(r prometheus.Registerer, s *DiscoveryServer) *metrics {
	registered := promauto.With(r)
	counter := func(name, help, label string) *prometheus.CounterVec {
		return registered.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{label})
	}
	histogram := func(name, help string) prometheus.Histogram {
		return registered.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: prometheus.ExponentialBuckets(0.0005, 2, 16)})
	}
	gauge := func(name, help string, value func() int) {
		registered.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 { return float64(value()) })
	}
	gauge("portolan_connected_proxies", "Streams that are open.", s.Connections)
	gauge("portolan_xds_failed_resources", "Resources that cannot be built. Proxies keep their last good form.", func() int { return len(s.desired.Failures()) })
	gauge("portolan_memo_resources", "Built resources that are held.", s.desired.Built)
	begun, _ := lru.New[int64, time.Time](keptRevisions) // fails for a size below 1 only
	m := &metrics{
		pushes:     counter("portolan_pushes_total", "Contexts published, by whether more than endpoints changed.", "full"),
		responses:  counter("portolan_xds_responses_total", "Responses sent, by type.", "type"),
		resources:  counter("portolan_xds_resources_sent_total", "Resources sent, by type.", "type"),
		rejections: counter("portolan_xds_rejections_total", "Responses that a proxy rejected, by type.", "type"),
		lates:      counter("portolan_xds_late_clusters_total", "Changes sent before the proxy had the clusters that they lead to, by type.", "type"),
		refused:    registered.NewCounter(prometheus.CounterOpts{Name: "portolan_xds_refused_secrets_total", Help: "Secrets that proxies requested and were not given: none of their clusters and listeners needs them, or they are not stored."}),
		buildTime:  histogram("portolan_xds_build_seconds", "Time to bring the resources of one proxy up to date."),
		ackTime:    histogram("portolan_apply_to_ack_seconds", "Time from the commit of a revision to its acknowledgement by a proxy."),
		begun:      begun,
	}
	for _, t := range s.proxyTypes {
		m.countersOf(t.Name) // from 0 on, so that an alert sees the first increase
	}
	return m
}

// acked records the time from the commit of a revision to a proxy's ACK, if the proxy was
// already connected when the revision came.
func (m *metrics) acked(revision int64, connected time.Time) {
	begun, known := m.begun.Peek(revision)
	if known && connected.Before(begun) {
		m.ackTime.Observe(time.Since(begun).Seconds())
	}
}

type counters struct{ responses, resources, rejections, lates prometheus.Counter }

func (m *metrics) countersOf(typeName string) counters {
	return counters{
		m.responses.WithLabelValues(typeName), m.resources.WithLabelValues(typeName),
		m.rejections.WithLabelValues(typeName), m.lates.WithLabelValues(typeName),
	}
}
