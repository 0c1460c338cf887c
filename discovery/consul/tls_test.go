package consul_test

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/portolan-mesh/portolan/discovery/consul"
)

// Over TLS many queries share a connection. So every service has its own query even if there
// are more services than Consul accepts connections.
func TestManyQueriesShareConnectionsOverTLS(t *testing.T) {
	t.Parallel()
	const services = 400
	a := newAgent(t)
	a.change(func() {
		for i := range services {
			e := entry(fmt.Sprintf("n%d", i), fmt.Sprintf("s%d", i), fmt.Sprintf("s%d", i), "10.0.0.1", 80)
			a.entries[e.Service.ID] = e
		}
	})
	var connections, most atomic.Int64
	var tokens sync.Map
	secure := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tokens.Store(r.Header.Get("X-Consul-Token"), true)
		a.ServeHTTP(w, r)
	}))
	secure.EnableHTTP2 = true
	secure.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		switch s {
		case http.StateNew:
			if n := connections.Add(1); n > most.Load() {
				most.Store(n)
			}
		case http.StateClosed:
			connections.Add(-1)
		}
	}
	secure.StartTLS()
	t.Cleanup(secure.Close)
	roots := x509.NewCertPool()
	roots.AddCert(secure.Certificate())
	f := follow(t, a, func(o *consul.Options) {
		o.Address = secure.URL
		o.TLS = func() (*tls.Config, error) { return &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, nil }
		o.Token = func() (string, error) { return "secret", nil }
	}).synced()
	s := f.Status().Datacenters[0]
	if s.By != "service" || s.Services != services || s.Limit != consul.DefaultMaxQueriesTLS {
		t.Errorf("%+v", s)
	}
	if n := most.Load(); n > 100 { // closing connections count too
		t.Errorf("%d services take %d connections at a time", services, n)
	}
	if _, other := tokens.Load(""); other {
		t.Error("a request had no token")
	}
	if strings.Contains(f.log.String(), "secret") {
		t.Error("the log has the token")
	}
	a.change(func() { a.entries["s7"] = entry("n7", "s7", "s7", "10.0.0.7", 80) })
	f.row("s7", "tcp-80=10.0.0.7:80")
}

func TestUntrustedCertificate(t *testing.T) {
	t.Parallel()
	a := newAgent(t)
	secure := httptest.NewTLSServer(a)
	t.Cleanup(secure.Close)
	secure.Config.ErrorLog = nil
	f := follow(t, a, func(o *consul.Options) { o.Address = secure.URL })
	await(t, "it says why", func() bool {
		err := f.Ready()
		return err != nil && strings.Contains(err.Error(), "certificate")
	})
}
