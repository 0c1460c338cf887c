package xds

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/portolan-mesh/portolan/discovery"
)

// metrics are those of the DiscoveryServer, each named after what is asked.
type metrics struct {
	pushes     *prometheus.CounterVec
	responses  *prometheus.CounterVec
	resources  *prometheus.CounterVec
	rejections *prometheus.CounterVec
	lates      *prometheus.CounterVec
	buildTime  prometheus.Histogram
	ackTime    prometheus.Histogram

	mu    sync.Mutex          // guards begun
	begun map[int64]time.Time // when a revision woke the pusher
	order []int64             // its keys, oldest first
}

// keptRevisions bounds how many revisions are timed at once.
const keptRevisions = 1024

func newMetrics(r prometheus.Registerer, s *DiscoveryServer) *metrics {
	buckets := prometheus.ExponentialBuckets(0.0005, 2, 16)
	m := &metrics{
		begun:      map[int64]time.Time{},
		pushes:     prometheus.NewCounterVec(prometheus.CounterOpts{Name: "portolan_pushes_total", Help: "Contexts published, by whether more than endpoints changed."}, []string{"full"}),
		responses:  prometheus.NewCounterVec(prometheus.CounterOpts{Name: "portolan_xds_responses_total", Help: "Responses sent, by type."}, []string{"type"}),
		resources:  prometheus.NewCounterVec(prometheus.CounterOpts{Name: "portolan_xds_resources_sent_total", Help: "Resources sent, by type."}, []string{"type"}),
		rejections: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "portolan_xds_rejections_total", Help: "Responses that a proxy rejected, by type."}, []string{"type"}),
		lates:      prometheus.NewCounterVec(prometheus.CounterOpts{Name: "portolan_xds_late_clusters_total", Help: "Changes sent before the proxy had the clusters that they lead to, by type."}, []string{"type"}),
		buildTime:  prometheus.NewHistogram(prometheus.HistogramOpts{Name: "portolan_xds_build_seconds", Help: "Time to bring the resources of one proxy up to date.", Buckets: buckets}),
		ackTime:    prometheus.NewHistogram(prometheus.HistogramOpts{Name: "portolan_apply_to_ack_seconds", Help: "Time from the commit of a revision to its acknowledgement by a proxy.", Buckets: buckets}),
	}
	if r == nil {
		return m
	}
	r.MustRegister(m.pushes, m.responses, m.resources, m.rejections, m.lates, m.buildTime, m.ackTime,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "portolan_connected_proxies", Help: "Streams that are open."}, func() float64 {
			return float64(s.Connections())
		}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "portolan_first_syncs", Help: "Proxies that are being brought up from nothing."}, func() float64 {
			return float64(s.admission.inside())
		}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "portolan_waiting_proxies", Help: "Proxies that wait for their turn to be brought up."}, func() float64 {
			return float64(s.admission.waiting.Load())
		}),
		prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "portolan_refused_proxies_total", Help: "Streams that were refused, as too many proxies waited."}, func() float64 {
			return float64(s.admission.refused.Load())
		}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "portolan_memo_resources", Help: "Built resources that are held."}, func() float64 {
			return float64(s.memo.Len())
		}))
	return m
}

func (m *metrics) publishing(request *discovery.PushRequest, revision int64) {
	full := "false"
	if request.Full {
		full = "true"
	}
	m.pushes.WithLabelValues(full).Inc()
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, known := m.begun[revision]; known {
		return
	}
	m.begun[revision] = request.Start
	if m.order = append(m.order, revision); len(m.order) > keptRevisions {
		delete(m.begun, m.order[0])
		m.order = m.order[1:]
	}
}

func (m *metrics) built(took time.Duration) { m.buildTime.Observe(took.Seconds()) }

// sentOf are the metrics of what is sent of one type.
type sentOf struct{ responses, resources prometheus.Counter }

func (m *metrics) of(typeName string) sentOf {
	return sentOf{m.responses.WithLabelValues(typeName), m.resources.WithLabelValues(typeName)}
}

func (s sentOf) sent(resources int) {
	s.responses.Inc()
	s.resources.Add(float64(resources))
}

// acked times a revision, for a proxy that was connected when it came.
func (m *metrics) acked(revision int64, connected time.Time) {
	m.mu.Lock()
	begun, known := m.begun[revision]
	m.mu.Unlock()
	if known && connected.Before(begun) {
		m.ackTime.Observe(time.Since(begun).Seconds())
	}
}

func (m *metrics) rejected(typeName string) { m.rejections.WithLabelValues(typeName).Inc() }

func (m *metrics) late(typeName string) { m.lates.WithLabelValues(typeName).Inc() }
