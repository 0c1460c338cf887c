package serve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest/credentials"
	"github.com/portolan-mesh/portolan/discovery/access/socket"
)

const (
	// drain is how long requests under way may take when the server stops. After that they are
	// cancelled.
	drain = 2 * time.Second
	// cancelGrace is how long cancelled requests may take to return. After that their
	// connections are closed.
	cancelGrace = 500 * time.Millisecond
	// maxHeader bounds the bytes of a request's header, including its URL.
	maxHeader = 64 << 10
)

type apiServer interface {
	Handler() http.Handler
	// EndWatches ends the requests that would otherwise never end.
	EndWatches()
}

// serveAPI serves on the listeners that are not nil, until ctx ends. It returns when no
// request is under way, within drain and cancelGrace.
func serveAPI(ctx context.Context, api apiServer, excess streamExcess, logger *slog.Logger, listeners ...net.Listener) error {
	requests, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	unused := &unusedConns{}
	h := &http.Server{
		Handler: excess.countResets(credentials.RenewalsOnly(api.Handler())), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: maxHeader,
		BaseContext: func(net.Listener) context.Context { return requests }, ConnState: unused.note, ConnContext: func(ctx context.Context, c net.Conn) context.Context { return withResets(socket.WithPeer(ctx, c), c) },
		ErrorLog: slog.NewLogLogger(logger.Handler(), slog.LevelDebug),
	}
	h.RegisterOnShutdown(api.EndWatches)
	h.RegisterOnShutdown(unused.close)
	shutDown := func(limit time.Duration) error {
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
		defer cancel()
		return h.Shutdown(limited)
	}
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		<-ctx.Done()
		if shutDown(drain) == nil {
			return
		}
		logger.Info("requests took too long for a server that stops, and are cancelled", "limit", drain)
		cancel()
		if shutDown(cancelGrace) != nil {
			_ = h.Close()
		}
	}()
	group := errgroup.Group{}
	for _, l := range listeners {
		if l == nil {
			continue
		}
		group.Go(func() error {
			if err := h.Serve(l); !errors.Is(err, http.ErrServerClosed) {
				_ = h.Close() // ends the other listeners, too
				return fmt.Errorf("serve the config API: %w", err)
			}
			return nil
		})
	}
	err := group.Wait()
	if err == nil {
		<-stopped
	}
	return err
}

// unusedConns tracks the connections without any request yet. Clients open some in advance;
// http.Server would wait up to 5 seconds for a request on each.
type unusedConns struct {
	mu     sync.Mutex // guards what follows
	closed bool
	conns  map[net.Conn]struct{}
}

// note implements http.Server.ConnState.
func (u *unusedConns) note(c net.Conn, state http.ConnState) {
	u.mu.Lock()
	defer u.mu.Unlock()
	switch {
	case state != http.StateNew:
		delete(u.conns, c)
	case u.closed:
		_ = c.Close()
	default:
		if u.conns == nil {
			u.conns = map[net.Conn]struct{}{}
		}
		u.conns[c] = struct{}{}
	}
}

// close closes these connections, and refuses later ones.
func (u *unusedConns) close() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.closed = true
	for c := range u.conns {
		_ = c.Close()
	}
}
