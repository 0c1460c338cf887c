package serve

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"github.com/portolan-mesh/portolan/discovery/identity/secure"
)

const (
	// An xDS connection that may have n streams at one time, with n at least 100, may open
	// streamBurst times n streams at once, then n / streamShare a second.
	streamBurst, streamShare = 5, 5
	// A client of the config API may cancel resetBurst requests of a connection at once, then
	// resetRate a second.
	resetBurst, resetRate = 500, 20
)

// The values of the metric's label port.
const portXDS, portAPI = "xDS", "config API"

// streamExcess counts the connections that were closed because their clients open or reset streams
// too fast.
type streamExcess struct {
	*prometheus.CounterVec
	logger *slog.Logger
}

func newExcess(logger *slog.Logger) streamExcess {
	e := streamExcess{logger: logger, CounterVec: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "portolan_stream_excess_total",
		Help: "Connections that were ended because their clients opened streams too fast (xDS), or gave up requests too fast (config API)."}, []string{"port"})}
	for _, port := range []string{portXDS, portAPI} {
		e.WithLabelValues(port)
	}
	return e
}

// bounds returns the bounds for an xDS connection that may have most streams at one time.
func (e streamExcess) bounds(most uint32) secure.Streams {
	n := max(int(most), DefaultMaxStreamsPerConnection)
	return secure.Streams{Burst: streamBurst * n, Rate: float64(n) / streamShare, OnExcess: func(client net.Addr) {
		e.WithLabelValues(portXDS).Inc()
		e.logger.Warn("closing a connection of xDS, as its client opens streams too fast: raise --max-streams-per-connection if it is meant", "client", client.String())
	}}
}

// resets counts the requests of one connection that its client has cancelled.
type resets struct {
	conn  net.Conn
	left  *rate.Limiter
	close sync.Once
}

// resetsKey is the context key of a connection's resets.
type resetsKey struct{}

// withResets stores a connection in its context, where countResets finds it.
func withResets(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, resetsKey{}, &resets{conn: c, left: rate.NewLimiter(resetRate, resetBurst)})
}

// countResets closes HTTP/2 connections whose clients send and cancel requests too fast:
// net/http only bounds how many of them run at one time. A client of HTTP/1 can only cancel a
// request by closing the connection.
// https://nvd.nist.gov/vuln/detail/CVE-2023-39325
func (e streamExcess) countResets(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer e.count(r) // even if the handler panics
		next.ServeHTTP(w, r)
	})
}

// count counts a handled request if its client has cancelled it.
func (e streamExcess) count(r *http.Request) {
	of, ok := r.Context().Value(resetsKey{}).(*resets)
	if !ok || r.ProtoMajor != 2 || r.Context().Err() == nil || of.left.Allow() {
		return
	}
	of.close.Do(func() {
		e.WithLabelValues(portAPI).Inc()
		e.logger.Warn("closing a connection of the config API, as its client gives up requests too fast", "client", of.conn.RemoteAddr().String())
		_ = of.conn.Close() // the reader of the connection gets an error
	})
}
