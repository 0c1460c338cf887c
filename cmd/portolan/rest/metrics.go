package rest

import (
	"errors"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics count requests, measure how fast they are answered, and count watches.
type metrics struct {
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	watchers *prometheus.GaugeVec
}

func newMetrics(registry prometheus.Registerer, s *Server) (*metrics, error) {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "portolan_api_requests_total",
			Help: "Requests to the API that have ended, by verb, kind (empty outside the config API) and HTTP status.",
		}, []string{"verb", "kind", "code"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "portolan_api_request_seconds",
			Help:    "Time from the header of a request to the end of its answer, watches left out.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 4, 8),
		}, []string{"verb"}),
		watchers: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "portolan_api_watchers",
			Help: "Watches that are open, by kind.",
		}, []string{"kind"}),
	}
	slow := prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "portolan_api_slow_watches_total",
		Help: "Watches that were ended, as their clients took nothing while others needed the memory.",
	}, func() float64 { return float64(s.watchers.slow.Load()) })
	held := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "portolan_api_watch_memory_bytes",
		Help: "Memory for events that watches are being sent, of --watch-memory.",
	}, func() float64 { return float64(s.frames.held()) })
	err := errors.Join(registry.Register(m.requests), registry.Register(m.seconds), registry.Register(m.watchers),
		registry.Register(slow), registry.Register(held))
	return m, err
}

func (m *metrics) observe(c *call, code int, took time.Duration) {
	verb := c.verb
	switch verb {
	case "get", "head", "list", "watch", "create", "update", "delete", "post", "put", "patch", "options":
	default:
		verb = "other" // a client may invent methods
	}
	m.requests.WithLabelValues(verb, c.kind, strconv.Itoa(code)).Inc()
	if verb != "watch" {
		m.seconds.WithLabelValues(verb).Observe(took.Seconds())
	}
}
