package xds

import (
	"strconv"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/portolan-mesh/portolan/discovery"
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
	begun      *lru.Cache[int64, time.Time] // when a revision woke the pusher
}

// keptRevisions bounds how many revisions are timed at one time.
const keptRevisions = 1024

func newMetrics(r prometheus.Registerer, s *DiscoveryServer) *metrics {
	buckets := prometheus.ExponentialBuckets(0.0005, 2, 16)
	m := &metrics{
		pushes:     prometheus.NewCounterVec(prometheus.CounterOpts{Name: "portolan_pushes_total", Help: "Contexts published, by whether more than endpoints changed."}, []string{"full"}),
		responses:  prometheus.NewCounterVec(prometheus.CounterOpts{Name: "portolan_xds_responses_total", Help: "Responses sent, by type."}, []string{"type"}),
		resources:  prometheus.NewCounterVec(prometheus.CounterOpts{Name: "portolan_xds_resources_sent_total", Help: "Resources sent, by type."}, []string{"type"}),
		rejections: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "portolan_xds_rejections_total", Help: "Responses that a proxy rejected, by type."}, []string{"type"}),
		lates:      prometheus.NewCounterVec(prometheus.CounterOpts{Name: "portolan_xds_late_clusters_total", Help: "Changes sent before the proxy had the clusters that they lead to, by type."}, []string{"type"}),
		refused:    prometheus.NewCounter(prometheus.CounterOpts{Name: "portolan_xds_refused_secrets_total", Help: "Secrets that proxies requested and were not given: none of their clusters and listeners needs them, or they are not stored."}),
		buildTime:  prometheus.NewHistogram(prometheus.HistogramOpts{Name: "portolan_xds_build_seconds", Help: "Time to bring the resources of one proxy up to date.", Buckets: buckets}),
		ackTime:    prometheus.NewHistogram(prometheus.HistogramOpts{Name: "portolan_apply_to_ack_seconds", Help: "Time from the commit of a revision to its acknowledgement by a proxy.", Buckets: buckets}),
	}
	m.begun, _ = lru.New[int64, time.Time](keptRevisions) // fails for a size below 1 only
	if r == nil {
		return m
	}
	r.MustRegister(m.pushes, m.responses, m.resources, m.rejections, m.lates, m.refused, m.buildTime, m.ackTime)
	gauge := func(name, help string, value func() float64) {
		r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value))
	}
	gauge("portolan_connected_proxies", "Streams that are open.", func() float64 { return float64(s.Connections()) })
	gauge("portolan_xds_failed_resources", "Resources that cannot be built. Proxies keep their last good form.", func() float64 { return float64(len(s.desired.Failures())) })
	gauge("portolan_memo_resources", "Built resources that are held.", func() float64 { return float64(s.desired.Built()) })
	return m
}

func (m *metrics) publishing(request *discovery.PushRequest, revision int64) {
	m.pushes.WithLabelValues(strconv.FormatBool(request.Full)).Inc()
	m.begun.ContainsOrAdd(revision, request.Start)
}

func (m *metrics) built(took time.Duration) { m.buildTime.Observe(took.Seconds()) }

// sentCounters are the counters of what is sent, for one type.
type sentCounters struct{ responses, resources prometheus.Counter }

func (m *metrics) countersOf(typeName string) sentCounters {
	return sentCounters{m.responses.WithLabelValues(typeName), m.resources.WithLabelValues(typeName)}
}

func (s sentCounters) sent(resources int) {
	s.responses.Inc()
	s.resources.Add(float64(resources))
}

// acked times a revision, if the proxy was connected when the revision came.
func (m *metrics) acked(revision int64, connected time.Time) {
	begun, known := m.begun.Peek(revision)
	if known && connected.Before(begun) {
		m.ackTime.Observe(time.Since(begun).Seconds())
	}
}

func (m *metrics) rejected(typeName string) { m.rejections.WithLabelValues(typeName).Inc() }

func (m *metrics) late(typeName string, n int) { m.lates.WithLabelValues(typeName).Add(float64(n)) }
