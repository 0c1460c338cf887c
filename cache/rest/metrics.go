package rest

import (
	"errors"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics answer what the API is asked for, how fast it answers and who
// watches.
type metrics struct {
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	watchers *prometheus.GaugeVec
}

func newMetrics(registry prometheus.Registerer) (*metrics, error) {
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
	err := errors.Join(registry.Register(m.requests), registry.Register(m.seconds), registry.Register(m.watchers))
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
