package etcdtest

import (
	"net/url"
	"testing"

	"go.etcd.io/etcd/server/v3/embed"
)

// Server is an etcd with a listener that a test can stop.
type Server struct {
	// Endpoint is where it listens.
	Endpoint string
	// Stop stops it, at most once; it is stopped when the test ends at the latest.
	Stop func()
}

// NewServer runs a server that listens where adjust has it: At or Authority.TLS.
func NewServer(t testing.TB, adjust ...Adjust) *Server {
	t.Helper()
	c := newConfig(directory(t))
	server, stop := start(t, c, adjust)
	at := c.AdvertiseClientUrls[0]
	if at.Scheme != "unix" {
		at.Host = server.Clients[0].Addr().String() // where port 0 was asked for
	}
	return &Server{Endpoint: at.String(), Stop: stop}
}

// At has a server listen at an endpoint without TLS.
func At(t testing.TB, endpoint string) Adjust {
	t.Helper()
	at, err := url.Parse(endpoint)
	if err != nil {
		t.Fatal(err)
	}
	return func(c *embed.Config) {
		c.ListenClientUrls, c.AdvertiseClientUrls = []url.URL{*at}, []url.URL{*at}
	}
}
