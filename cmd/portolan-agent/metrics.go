package main

import (
	"context"
	"io"
	"net"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/portolan-mesh/portolan/cmd/portolan-agent/capture"
)

// metrics returns the agent's own.
func (a *agent) metrics() *prometheus.Registry {
	registry := prometheus.NewRegistry()
	gauge := func(name, text string, value func() float64) {
		registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "portolan_agent_" + name, Help: text}, value))
	}
	gauge("certificate_expires_seconds", "When the machine's certificate expires, in Unix time; 0 if it cannot be read.", func() float64 {
		until := a.secrets.Until()
		if until.IsZero() {
			return 0
		}
		return float64(until.Unix())
	})
	gauge("proxies", "Proxies that are connected to the agent.", func() float64 { return float64(len(a.relay.Clients())) })
	gauge("proxies_without_server", "Connected proxies for which no server answers.", func() float64 {
		n := 0
		for _, c := range a.relay.Clients() {
			if c.Server == "" {
				n++
			}
		}
		return float64(n)
	})
	if a.envoy != nil {
		gauge("envoy_restarts", "How often Envoy has ended and was started again.", func() float64 { return float64(a.envoy.Status().Restarts) })
	}
	a.health.Register(registry)
	if a.capture != nil {
		gauge("capture_in_force", "1 if the machine's traffic is captured, else 0.", func() float64 {
			if a.capture.Status().State == capture.InForce {
				return 1
			}
			return 0
		})
		gauge("capture_mended", "How often others had changed the rules of capture, and the agent put them in force again.", func() float64 { return float64(a.capture.Status().Mended) })
	}
	if a.names != nil {
		a.nameMetrics(registry)
	}
	return registry
}

// serveMetrics serves /metrics until ctx ends: the agent's own, and those of Envoy.
func (a *agent) serveMetrics(ctx context.Context, l net.Listener) error {
	own := promhttp.HandlerFor(a.metrics(), promhttp.HandlerOpts{DisableCompression: true})
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) {
		plain := r.Clone(r.Context())
		plain.Header.Del("Accept") // the text format is what Envoy's can follow
		own.ServeHTTP(w, plain)
		if a.envoy == nil {
			return
		}
		text, err := a.envoy.Metrics(r.Context(), r.URL.Query().Get("filter"))
		if err != nil { // an Envoy that is away has no metrics
			a.logger.Warn("Envoy's metrics cannot be read", "err", err)
			return
		}
		_, _ = io.WriteString(w, text)
	})
	mux.HandleFunc("GET "+readyPath, a.writeReady)
	return serveHTTP(ctx, l, &http.Server{Handler: mux})
}
