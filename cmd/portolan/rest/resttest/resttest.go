// Package resttest runs a config API over a store in memory, for tests.
package resttest

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/cache"
	cachememory "github.com/portolan-mesh/portolan/cache/memory"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest"
	"github.com/portolan-mesh/portolan/discovery/access/socket"
	"github.com/portolan-mesh/portolan/storage/memory"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/storage/sealing"
)

// Server is a running API. It ends with the test.
type Server struct {
	URL   string
	Store *memory.Store
	Cache *cachememory.Cache
	REST  *rest.Server
	// Options are the options of the API.
	Options rest.Options
	// HTTP is a client that keeps no connections.
	HTTP *http.Client

	socket string
}

// Local returns the same API over its socket, which serves Private paths.
func (s *Server) Local() *Server {
	local := *s
	local.HTTP = socket.Client(s.socket)
	return &local
}

// Start runs an API; configure may change the options, including the store and the
// cache. history is how many revisions the cache keeps, 0 for many. extend is called
// before the API serves.
func Start(t testing.TB, history int, configure func(*rest.Options), extend ...func(*rest.Server)) *Server {
	t.Helper()
	return start(t, schema.Pilot(), history, func(o *rest.Options) {
		o.Side = side(t)
		if configure != nil {
			configure(o)
		}
	}, extend...)
}

// side returns the kinds beside those of the mesh.
func side(t testing.TB) *rest.Backend {
	store, replica := replicated(t, schema.Side(), 0)
	return &rest.Backend{Store: store, Cache: replica}
}

// StartKinds is Start for the given kinds, with none beside them.
func StartKinds(t testing.TB, schemas schema.Set, extend ...func(*rest.Server)) *Server {
	t.Helper()
	return start(t, schemas, 0, nil, extend...)
}

// replicated returns an empty store and its cache, which runs until the test ends.
func replicated(t testing.TB, schemas schema.Set, history int) (*memory.Store, *cachememory.Cache) {
	t.Helper()
	worker := cache.NewWorker()
	store := memory.New(schemas, memory.Options{})
	replica := cachememory.New(store, cachememory.Options{Worker: worker, History: history})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = worker.Run(ctx) })
	running.Go(func() { _ = replica.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	wait, stop := context.WithTimeout(ctx, 10*time.Second)
	defer stop()
	if _, err := replica.Await(wait, 1); err != nil {
		t.Fatal(err)
	}
	return store, replica
}

func start(t testing.TB, schemas schema.Set, history int, configure func(*rest.Options), extend ...func(*rest.Server)) *Server {
	t.Helper()
	store, replica := replicated(t, schemas, history)
	path := filepath.Join(t.TempDir(), "api.sock")
	sealer := sealing.New(filepath.Join(t.TempDir(), "sealing.key"), store)
	o := rest.Options{Store: store, Sealer: sealer, Cache: replica, History: store, Version: "v1.2.3", Socket: path}
	if configure != nil {
		configure(&o)
	}
	api, err := rest.New(o)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range extend {
		f(api)
	}
	server, local := httptest.NewServer(api.Handler()), httptest.NewUnstartedServer(api.Handler())
	_ = local.Listener.Close()
	if local.Listener, err = socket.Listen(path); err != nil {
		t.Fatal(err)
	}
	local.Config.ConnContext = socket.WithPeer
	local.Start()
	t.Cleanup(func() {
		api.EndWatches()
		server.Close()
		local.Close()
	})
	return &Server{URL: server.URL, Store: store, Cache: replica, REST: api, Options: o, HTTP: server.Client(), socket: path}
}

// Answer is the answer to a request.
type Answer struct {
	Code   int
	Header http.Header
	Body   string
}

// Do sends a request; edit may change it. A body that is not empty gets the Content-Type
// of JSON first.
func (s *Server) Do(t testing.TB, method, path, body string, edit ...func(*http.Request)) Answer {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, s.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for _, f := range edit {
		f(r)
	}
	response, err := s.HTTP.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return Answer{Code: response.StatusCode, Header: response.Header, Body: string(text)}
}
