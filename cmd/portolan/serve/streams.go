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
	// On a connection that may have n streams at one time, and 100 at least, a client of xDS may
	// open streamBurst times n at once, and n / streamShare a second from then on.
	streamBurst, streamShare = 5, 5
	// A client of the config API may give up resetBurst requests of a connection at once, and
	// resetRate a second from then on.
	resetBurst, resetRate = 500, 20
)

// The ports of the metric.
const portXDS, portAPI = "xDS", "config API"

// excess counts connections that end because their clients open streams, or reset them, too
// fast.
type excess struct {
	*prometheus.CounterVec
	logger *slog.Logger
}

func newExcess(logger *slog.Logger) excess {
	e := excess{logger: logger, CounterVec: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "portolan_stream_excess_total",
		Help: "Connections that were ended because their clients opened streams too fast (xDS), or gave up requests too fast (config API)."}, []string{"port"})}
	for _, port := range []string{portXDS, portAPI} {
		e.WithLabelValues(port)
	}
	return e
}

// bounds are those of a connection of xDS that may have so many streams at one time.
func (e excess) bounds(most uint32) secure.Streams {
	n := max(int(most), DefaultMaxStreamsPerConnection)
	return secure.Streams{Burst: streamBurst * n, Rate: float64(n) / streamShare, OnExcess: func(client net.Addr) {
		e.WithLabelValues(portXDS).Inc()
		e.logger.Warn("closing a connection of xDS, as its client opens streams too fast: raise --max-streams-per-connection if it is meant", "client", client.String())
	}}
}

// resets are the requests of one connection that its client gave up.
type resets struct {
	conn  net.Conn
	left  *rate.Limiter
	close sync.Once
}

// resetsKey finds the resets in the context of a connection.
type resetsKey struct{}

// withResets has handlers of countResets find the connection.
func withResets(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, resetsKey{}, &resets{conn: c, left: rate.NewLimiter(resetRate, resetBurst)})
}

// countResets ends connections of HTTP/2 whose clients ask and give up too fast: net/http alone
// bounds how many of such requests run at one time. A client of HTTP/1 can give up no request
// but with its connection.
func (e excess) countResets(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer e.count(r) // also where it panics
		next.ServeHTTP(w, r)
	})
}

// count counts a request that was handled, if its client gave it up.
func (e excess) count(r *http.Request) {
	of, ok := r.Context().Value(resetsKey{}).(*resets)
	if !ok || r.ProtoMajor != 2 || r.Context().Err() == nil || of.left.Allow() {
		return
	}
	of.close.Do(func() {
		e.WithLabelValues(portAPI).Inc()
		e.logger.Warn("closing a connection of the config API, as its client gives up requests too fast", "client", of.conn.RemoteAddr().String())
		_ = of.conn.Close() // its reader learns of it
	})
}
