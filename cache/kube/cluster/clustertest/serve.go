// Package clustertest starts the API servers of tests.
package clustertest

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
)

// Serve starts a server, which ends with the test. The contexts of its requests end first: a client that
// still watches, or watches again, keeps no test from its end.
func Serve(t testing.TB, handler http.Handler) *httptest.Server {
	t.Helper()
	ctx, end := context.WithCancel(context.Background())
	server := httptest.NewUnstartedServer(handler)
	server.Config.BaseContext = func(net.Listener) context.Context { return ctx }
	server.Start()
	t.Cleanup(func() {
		end()
		server.CloseClientConnections()
		server.Close()
	})
	return server
}
