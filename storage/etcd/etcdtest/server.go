package etcdtest

import (
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/goleak"
)

// Server is an etcd with a listener. A test can stop and restart it. It stops at the
// latest when the test ends.
type Server struct {
	// Endpoint is where it listens, the same after a restart.
	Endpoint string

	config func() *embed.Config
	stop   func()
}

// NewServer runs a server that listens on a unix socket, or where adjust says.
func NewServer(t testing.TB, adjust ...Adjust) *Server {
	t.Helper()
	s := newServer(t, adjust)
	s.Start(t)
	return s
}

func newServer(t testing.TB, adjust []Adjust) *Server {
	t.Helper()
	dir := directory(t)
	adjust = append([]Adjust{At(t, "unix://"+filepath.Join(dir, "s"))}, adjust...)
	s := &Server{}
	s.config = func() *embed.Config {
		c := newConfig(dir)
		for _, a := range adjust {
			a(c)
		}
		if s.Endpoint != "" {
			At(t, s.Endpoint)(c)
		}
		return c
	}
	return s
}

// Start restarts a stopped server on its data.
func (s *Server) Start(t testing.TB) {
	t.Helper()
	awaitReady(t, s.launch(t))
}

func (s *Server) launch(t testing.TB) *embed.Etcd {
	t.Helper()
	c := s.config()
	server, stop := launch(t, c)
	s.stop = stop
	if s.Endpoint == "" {
		at := c.AdvertiseClientUrls[0]
		if at.Scheme != "unix" {
			at.Host = server.Clients[0].Addr().String() // where the configuration has port 0
		}
		s.Endpoint = at.String()
	}
	return server
}

// Stop stops the server.
func (s *Server) Stop() { s.stop() }

// At makes a server listen at an endpoint, without TLS unless another Adjust sets that
// up.
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

// Cluster runs three members, each on a unix socket of its own.
func Cluster(t testing.TB, adjust ...Adjust) []*Server {
	t.Helper()
	peers := freeAddresses(t, 3)
	var initial []string
	for i, peer := range peers {
		initial = append(initial, fmt.Sprintf("m%d=http://%s", i, peer))
	}
	members := make([]*Server, len(peers))
	launched := make([]*embed.Etcd, len(peers))
	for i, peer := range peers {
		at := []url.URL{{Scheme: "http", Host: peer}}
		members[i] = newServer(t, slices.Concat(adjust, []Adjust{func(c *embed.Config) {
			c.Name, c.InitialCluster = fmt.Sprint("m", i), strings.Join(initial, ",")
			c.ListenPeerUrls, c.AdvertisePeerUrls = at, at
		}}))
		launched[i] = members[i].launch(t)
	}
	for _, server := range launched { // none becomes ready before the others run
		awaitReady(t, server)
	}
	return members
}

// Endpoints returns the endpoints of several servers.
func Endpoints(servers []*Server) (out []string) {
	for _, s := range servers {
		out = append(out, s.Endpoint)
	}
	return out
}

// freeAddresses returns addresses of this machine on which nothing listens.
func freeAddresses(t testing.TB, n int) (out []string) {
	t.Helper()
	for range n {
		out = append(out, Local(FreePort(t)))
	}
	return out
}

// LeftByMembers are options for goleak that ignore the connections which members of a
// cluster leave behind.
func LeftByMembers() []goleak.Option {
	return []goleak.Option{
		goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"),
		goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"),
		goleak.IgnoreAnyFunction("net/http.(*connReader).backgroundRead"),
		goleak.IgnoreAnyFunction("net/http.(*conn).serve"),
	}
}
