package relay_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/portolan-mesh/portolan/cmd/portolan-agent/relay"
	"github.com/portolan-mesh/portolan/discovery/node"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const clusters = "type.googleapis.com/envoy.config.cluster.v3.Cluster"

// upstream is a server that gives every client the resource "a" in its own version, unless the
// client states that. It notes the requests.
type upstream struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
	version string
	address string
	stop    func()

	mu       sync.Mutex
	requests []*discoveryv3.DeltaDiscoveryRequest
}

func startUpstream(t *testing.T, version, address string) *upstream {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	u := &upstream{version: version, address: l.Addr().String()}
	g := grpc.NewServer()
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(g, u)
	done := make(chan struct{})
	go func() { defer close(done); _ = g.Serve(l) }()
	u.stop = sync.OnceFunc(func() { g.Stop(); <-done })
	t.Cleanup(u.stop)
	return u
}

func (u *upstream) said() []*discoveryv3.DeltaDiscoveryRequest {
	u.mu.Lock()
	defer u.mu.Unlock()
	return append([]*discoveryv3.DeltaDiscoveryRequest(nil), u.requests...)
}

func (u *upstream) DeltaAggregatedResources(s discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	for n := 0; ; n++ {
		r, err := s.Recv()
		if err != nil {
			return err
		}
		u.mu.Lock()
		u.requests = append(u.requests, r)
		u.mu.Unlock()
		if n == 0 && r.GetInitialResourceVersions()["a"] != u.version {
			out := &discoveryv3.DeltaDiscoveryResponse{TypeUrl: clusters, Nonce: "1", Resources: []*discoveryv3.Resource{{Name: "a", Version: u.version, Resource: &anypb.Any{Value: []byte(u.version)}}}}
			if err := s.Send(out); err != nil {
				return err
			}
		}
	}
}

// start runs a new relay, and returns a client of it.
func start(t *testing.T, o relay.Options) (discoveryv3.AggregatedDiscoveryServiceClient, func()) {
	t.Helper()
	return serve(t, relay.New(o))
}

// serve runs a relay, and returns a client of it.
func serve(t *testing.T, r *relay.Relay) (discoveryv3.AggregatedDiscoveryServiceClient, func()) {
	t.Helper()
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "xds"))
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer(relay.ServerOptions()...)
	r.Register(g)
	done := make(chan struct{})
	go func() { defer close(done); _ = g.Serve(l) }()
	conn, err := grpc.NewClient("unix:"+l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	stop := sync.OnceFunc(func() { _ = conn.Close(); g.Stop(); <-done })
	t.Cleanup(stop)
	return discoveryv3.NewAggregatedDiscoveryServiceClient(conn), stop
}

// client is a stream that has asked for all clusters.
type client struct {
	t *testing.T
	discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesClient
}

func connect(t *testing.T, to discoveryv3.AggregatedDiscoveryServiceClient, versions map[string]string) client {
	t.Helper()
	return connectAs(t, to, "web", versions)
}

func connectAs(t *testing.T, to discoveryv3.AggregatedDiscoveryServiceClient, node string, versions map[string]string) client {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	s, err := to.DeltaAggregatedResources(ctx)
	if err != nil {
		t.Fatal(err)
	}
	c := client{t, s}
	c.say(&discoveryv3.DeltaDiscoveryRequest{Node: &corev3.Node{Id: node}, InitialResourceVersions: versions})
	return c
}

func (c client) say(r *discoveryv3.DeltaDiscoveryRequest) {
	c.t.Helper()
	r.TypeUrl = clusters
	if err := c.Send(r); err != nil {
		c.t.Fatal(err)
	}
}

// take expects a version of "a", and acknowledges it.
func (c client) take(version string) {
	c.t.Helper()
	r, err := c.Recv()
	if err != nil {
		c.t.Fatal(err)
	}
	if len(r.GetResources()) != 1 || r.GetResources()[0].GetVersion() != version || string(r.GetResources()[0].GetResource().GetValue()) != version {
		c.t.Fatalf("it gets %v, want %s", r, version)
	}
	c.say(&discoveryv3.DeltaDiscoveryRequest{ResponseNonce: r.GetNonce()})
}

func eventually(t *testing.T, what string, check func() error) {
	t.Helper()
	var err error
	for end := time.Now().Add(15 * time.Second); time.Now().Before(end); {
		if err = check(); err == nil {
			return
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-t.Context().Done():
		}
	}
	t.Fatalf("%s: %v", what, err)
}

// TestServersAreReplaced: the client's stream outlives its servers, each of which is told what the
// client has, and no answer that is for another.
func TestServersAreReplaced(t *testing.T) {
	t.Parallel()
	one := startUpstream(t, "v1", "127.0.0.1:0")
	to, _ := start(t, relay.Options{Servers: relay.Servers{Addresses: []string{one.address}}})
	c := connect(t, to, nil)
	c.take("v1")
	eventually(t, "the first server has the answer", func() error {
		if len(one.said()) != 2 {
			return fmt.Errorf("it has %v", one.said())
		}
		return nil
	})
	one.stop()
	again := startUpstream(t, "v1", one.address)
	eventually(t, "the next server has the client", func() error {
		if said := again.said(); len(said) != 1 || said[0].GetInitialResourceVersions()["a"] != "v1" || said[0].GetNode().GetId() != "web" || len(said[0].GetResourceNamesSubscribe()) != 0 {
			return fmt.Errorf("it is told %v", said)
		}
		return nil
	})
	again.stop()
	next := startUpstream(t, "v2", one.address)
	c.take("v2")
	eventually(t, "the last server has its answer", func() error {
		if said := next.said(); len(said) != 2 || said[1].GetResponseNonce() != "1" {
			return fmt.Errorf("it is told %v", said)
		}
		return nil
	})
}

// nobody is an address at which nobody listens.
// TestReports: the server of each client is told how the machine is, and that it leaves, and so is
// one to which a client goes over later.
func TestReports(t *testing.T) {
	t.Parallel()
	first, second := startUpstream(t, "1", "127.0.0.1:0"), startUpstream(t, "2", "127.0.0.1:0")
	r := relay.New(relay.Options{Servers: relay.Servers{Addresses: []string{first.address, second.address}}})
	to, _ := serve(t, r)
	connect(t, to, nil)
	told := func(u *upstream, code codes.Code) error {
		for _, q := range u.said() {
			if codes.Code(q.GetErrorDetail().GetCode()) == code && q.GetTypeUrl() == "type.googleapis.com/istio.v1.HealthInformation" && q.GetResponseNonce() == "" {
				return nil
			}
		}
		return fmt.Errorf("it has been told %v", u.said())
	}
	eventually(t, "a server has the client", func() error {
		if len(first.said())+len(second.said()) == 0 {
			return errors.New("none")
		}
		return nil
	})
	one, other := first, second
	if len(one.said()) == 0 {
		one, other = second, first
	}
	toldFacts := func(u *upstream, version string) error {
		for _, q := range u.said() {
			if q.GetTypeUrl() == "type.googleapis.com/portolan.machine.v1.Facts" && node.FactsOf(q.GetNode().GetMetadata()).Agent == version {
				return nil
			}
		}
		return fmt.Errorf("it has been told %v", u.said())
	}
	r.Tell(t.Context(), node.Facts{Agent: "1"})
	eventually(t, "the server is told of the facts", func() error { return toldFacts(one, "1") })
	r.Tell(t.Context(), node.Facts{Agent: "2"})
	eventually(t, "the server is told of the change", func() error { return toldFacts(one, "2") })
	for _, healthy := range []bool{false, true} {
		r.Report(t.Context(), healthy, "it says so")
	}
	eventually(t, "the server is told of its illness", func() error { return told(one, codes.Unavailable) })
	eventually(t, "the server is told of its health", func() error { return told(one, codes.OK) })
	r.Leave(t.Context())
	r.Report(t.Context(), true, "") // comes too late
	eventually(t, "the server is told", func() error { return told(one, codes.Canceled) })
	one.stop()
	eventually(t, "the next server is told", func() error { return told(other, codes.Canceled) })
	eventually(t, "the next server is told of the last facts", func() error { return toldFacts(other, "2") })
	if toldFacts(other, "1") == nil {
		t.Error("the next server is told of facts that are past")
	}
	if told(other, codes.OK) == nil {
		t.Error("a machine that has left is healthy")
	}
}

func nobody(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

func openStore(t *testing.T, dir string, age time.Duration) *relay.Store {
	t.Helper()
	s, err := relay.OpenStore(dir, age, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestLastGood: a relay that is started again while no server answers gives a client what it had,
// and goes over to a server once one answers.
func TestLastGood(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	one := startUpstream(t, "v1", "127.0.0.1:0")
	o := relay.Options{Servers: relay.Servers{Addresses: []string{one.address}}, Store: openStore(t, dir, time.Hour), Patience: 100 * time.Millisecond, SaveEvery: 5 * time.Millisecond}
	to, stop := start(t, o)
	connect(t, to, nil).take("v1")
	eventually(t, "it is kept", func() error {
		if kept := o.Store.List(); len(kept) != 1 || kept[0].Proxy != "web" {
			return fmt.Errorf("kept is %v", kept)
		}
		return nil
	})
	stop()
	one.stop()

	o.Store = openStore(t, dir, time.Hour)
	to, _ = start(t, o)
	c := connect(t, to, nil)
	c.take("v1")
	next := startUpstream(t, "v2", one.address)
	c.take("v2")
	if said := next.said(); said[0].GetInitialResourceVersions()["a"] != "v1" {
		t.Errorf("the server is told %v", said)
	}
}

// TestLastGoodAtAnotherAddress: a client at another address gets what it had, also while no server
// is there. Another client does not.
func TestLastGoodAtAnotherAddress(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	one := startUpstream(t, "v1", "127.0.0.1:0")
	o := relay.Options{Servers: relay.Servers{Addresses: []string{one.address}}, Store: openStore(t, dir, time.Hour), Patience: 20 * time.Millisecond, SaveEvery: 5 * time.Millisecond}
	to, stop := start(t, o)
	const before, now, stranger = "sidecar~10.0.0.1~web.shop~shop.svc.cluster.local", "sidecar~10.0.0.2~web.shop~shop.svc.cluster.local", "sidecar~10.0.0.2~api.shop~shop.svc.cluster.local"
	connectAs(t, to, before, nil).take("v1")
	eventually(t, "it is kept", func() error {
		if kept := o.Store.List(); len(kept) != 1 || kept[0].Proxy != before || !kept[0].For(now) || kept[0].For(stranger) {
			return fmt.Errorf("kept is %v", kept)
		}
		return nil
	})
	stop()
	one.stop()

	o.Store = openStore(t, dir, time.Hour)
	to, _ = start(t, o)
	other := connectAs(t, to, stranger, nil)
	connectAs(t, to, now, nil).take("v1")
	startUpstream(t, "v2", one.address)
	other.take("v2") // the first that it gets
}

// TestLastGoodOfThePresentAddress: a stream of the agent's own proxy at a past address, which ends
// later, does not replace what is kept of the proxy at the present one.
func TestLastGoodOfThePresentAddress(t *testing.T) {
	t.Parallel()
	const before, now = "sidecar~10.0.0.1~web.shop~shop.svc.cluster.local", "sidecar~10.0.0.2~web.shop~shop.svc.cluster.local"
	one := startUpstream(t, "v1", "127.0.0.1:0")
	store := openStore(t, t.TempDir(), time.Hour)
	r := relay.New(relay.Options{Servers: relay.Servers{Addresses: []string{one.address}}, Store: store, SaveEvery: time.Hour, Node: before}) // so a stream is kept when it ends
	to, _ := serve(t, r)
	end := func(c client) {
		t.Helper()
		if err := c.CloseSend(); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Recv(); err == nil {
			t.Fatal("the stream goes on")
		}
	}
	old := connectAs(t, to, before, nil)
	old.take("v1")
	r.Rename(t.Context(), now)
	next := connectAs(t, to, now, nil)
	next.take("v1")
	end(next)
	end(old)
	if kept := store.List(); len(kept) != 1 || kept[0].Proxy != now {
		t.Errorf("kept is %v", kept)
	}
}

// TestDamagedLastGood: a damaged file is set aside, and an old one is not used.
func TestDamagedLastGood(t *testing.T) {
	t.Parallel()
	for name, harm := range map[string]func(t *testing.T, file string) error{
		"cut":   func(_ *testing.T, file string) error { return os.Truncate(file, 40) },
		"empty": func(_ *testing.T, file string) error { return os.Truncate(file, 0) },
		"changed": func(_ *testing.T, file string) error {
			return os.WriteFile(file, []byte("{}\n0123456789012345678901234567890123456789"), 0o600)
		},
		"old": func(_ *testing.T, file string) error {
			return os.Chtimes(file, time.Now(), time.Now().Add(-2*time.Hour))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			one := startUpstream(t, "v1", "127.0.0.1:0")
			o := relay.Options{Servers: relay.Servers{Addresses: []string{one.address}}, Store: openStore(t, dir, time.Hour), Patience: 20 * time.Millisecond, SaveEvery: 5 * time.Millisecond}
			to, stop := start(t, o)
			connect(t, to, nil).take("v1")
			eventually(t, "it is kept", func() error {
				if len(o.Store.List()) != 1 {
					return errors.New("it is not")
				}
				return nil
			})
			stop()
			files, _ := filepath.Glob(filepath.Join(dir, "*.lastgood"))
			info, err := os.Stat(files[0])
			if err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("the file is %v, %v", info.Mode(), err)
			}
			if err := harm(t, files[0]); err != nil {
				t.Fatal(err)
			}
			o.Servers.Addresses = []string{nobody(t)}
			to, stop = start(t, o)
			c := connect(t, to, nil)
			got := make(chan error, 1)
			go func() { _, err := c.Recv(); got <- err }()
			if name != "old" {
				eventually(t, "it is set aside", func() error {
					_, err := os.Stat(files[0] + ".damaged")
					return err
				})
			}
			select {
			case err := <-got:
				t.Fatalf("the client gets an answer, %v", err)
			case <-time.After(200 * time.Millisecond):
			}
			stop()
			<-got
		})
	}
}

// TestAFailedHandshakeIsExplained: the log says why a server is not in use, with what the owner of the
// relay adds.
func TestAFailedHandshakeIsExplained(t *testing.T) {
	t.Parallel()
	plain := startUpstream(t, "v1", "127.0.0.1:0")
	lines := make(chan string, 100)
	to, _ := start(t, relay.Options{
		Servers: relay.Servers{
			Addresses: []string{plain.address}, TLS: func() (*tls.Config, error) { return &tls.Config{MinVersion: tls.VersionTLS12}, nil },
			Explain: func(err error) error { return fmt.Errorf("%w: explained", err) },
		},
		Logger: slog.New(slog.NewTextHandler(linesTo(lines), nil)),
	})
	connect(t, to, nil)
	if got := <-lines; !strings.Contains(got, "tls: first record does not look like a TLS handshake") || !strings.Contains(got, ": explained") {
		t.Errorf("the log says %s", got)
	}
}

// linesTo passes on each line of a log, until nobody takes more.
type linesTo chan string

func (l linesTo) Write(line []byte) (int, error) {
	select {
	case l <- string(line):
	default:
	}
	return len(line), nil
}
