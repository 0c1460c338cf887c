package objects

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync/atomic"
	"testing"

	"github.com/portolan-mesh/portolan/cmd/portolan/clitest"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/batch"
)

// inFrontOf starts a server in front of an API: it answers a request itself, or does something before
// the API does. It returns its URL.
func inFrontOf(t *testing.T, a clitest.API, answers func(http.ResponseWriter, *http.Request) bool) string {
	t.Helper()
	to, err := url.Parse(a.URL)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(to)
	transport := &http.Transport{}
	proxy.Transport = transport
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !answers(w, r) {
			proxy.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(func() {
		server.Close()
		transport.CloseIdleConnections()
	})
	return server.URL
}

// beforeBatches returns the URL of a server that does something before each change of an API, which
// it counts from 1.
func beforeBatches(t *testing.T, a clitest.API, do func(n int)) string {
	t.Helper()
	var count atomic.Int64
	return inFrontOf(t, a, func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodPost && r.URL.Path == batch.Path {
			do(int(count.Add(1)))
		}
		return false
	})
}
