package relay_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/portolan-mesh/portolan/cmd/portolan-agent/relay"
)

const followed = "type.googleapis.com/example.Name"

// names is a server that gives every client the cluster "a", and the names of a table that the
// client has not stated. It says which stated ones are gone. The tables, versions by name, are
// those of its streams in turn; the last is for all others.
type names struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
	tables  []map[string]string
	streams atomic.Int32
	acked   atomic.Int32 // answers of proxies
	address string
	stop    func()
}

func startNames(t *testing.T, tables ...map[string]string) *names {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n := &names{tables: tables, address: l.Addr().String()}
	g := grpc.NewServer()
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(g, n)
	done := make(chan struct{})
	go func() { defer close(done); _ = g.Serve(l) }()
	n.stop = sync.OnceFunc(func() { g.Stop(); <-done })
	t.Cleanup(n.stop)
	return n
}

func (n *names) DeltaAggregatedResources(s discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	of := n.tables[min(int(n.streams.Add(1)), len(n.tables))-1]
	for {
		r, err := s.Recv()
		if err != nil {
			return err
		}
		if r.GetResponseNonce() != "" {
			if r.GetTypeUrl() == clusters {
				n.acked.Add(1)
			}
			continue
		}
		table := map[string]string{"a": "1"}
		if r.GetTypeUrl() == followed {
			table = of
		}
		out := &discoveryv3.DeltaDiscoveryResponse{TypeUrl: r.GetTypeUrl(), Nonce: "1"}
		for _, name := range slices.Sorted(maps.Keys(table)) {
			if r.GetInitialResourceVersions()[name] != table[name] {
				out.Resources = append(out.Resources, &discoveryv3.Resource{Name: name, Version: table[name], Resource: &anypb.Any{Value: []byte(table[name])}})
			}
		}
		for _, name := range slices.Sorted(maps.Keys(r.GetInitialResourceVersions())) {
			if table[name] == "" {
				out.RemovedResources = append(out.RemovedResources, name)
			}
		}
		if len(out.Resources)+len(out.RemovedResources) == 0 {
			continue
		}
		if err := s.Send(out); err != nil {
			return err
		}
	}
}

// StreamAggregatedResources gives the same in state of the world, without names.
func (n *names) StreamAggregatedResources(s discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error {
	of := n.tables[min(int(n.streams.Add(1)), len(n.tables))-1]
	for {
		r, err := s.Recv()
		if err != nil {
			return err
		}
		if r.GetResponseNonce() != "" {
			if r.GetTypeUrl() == followed {
				n.acked.Add(1)
			}
			continue
		}
		table := map[string]string{"a": "1"}
		if r.GetTypeUrl() == followed {
			table = of
		}
		out := &discoveryv3.DiscoveryResponse{TypeUrl: r.GetTypeUrl(), Nonce: "1", VersionInfo: fmt.Sprint(table)}
		for _, name := range slices.Sorted(maps.Keys(table)) {
			out.VersionInfo = table[name]
			out.Resources = append(out.Resources, &anypb.Any{Value: []byte(table[name])})
		}
		if err := s.Send(out); err != nil {
			return err
		}
	}
}

// connectWorld opens a stream in state of the world, and takes all clusters on it.
func connectWorld(t *testing.T, to discoveryv3.AggregatedDiscoveryServiceClient) (end func()) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	s, err := to.StreamAggregatedResources(ctx)
	if err == nil {
		err = s.Send(&discoveryv3.DiscoveryRequest{TypeUrl: clusters, Node: &corev3.Node{Id: "web"}})
	}
	if err != nil {
		t.Fatal(err)
	}
	if r, err := s.Recv(); err != nil || r.GetTypeUrl() != clusters {
		t.Fatalf("the program gets %v, %v", r, err)
	}
	var running sync.WaitGroup
	running.Go(func() {
		if r, err := s.Recv(); err == nil {
			t.Errorf("the program gets %v, too", r)
		}
	})
	end = sync.OnceFunc(func() { cancel(); running.Wait() })
	t.Cleanup(end)
	return end
}

// TestFollowInStateOfTheWorld: the agent follows a type of one resource on the streams of gRPC
// programs, also from what is kept. The programs see nothing of it. Other types stay those of the
// proxy's stream.
func TestFollowInStateOfTheWorld(t *testing.T) {
	t.Parallel()
	server := startNames(t, map[string]string{"x": "1"}, map[string]string{"x": "2"}, map[string]string{})
	dir := t.TempDir()
	var got table
	o := relay.Options{Servers: relay.Servers{Addresses: []string{server.address}}, Store: openStore(t, dir, time.Hour), SaveEvery: time.Millisecond, Node: "web",
		Follow: map[string]relay.Follower{followed: got.take}, Single: map[string]string{followed: "one"}}
	api, stop := start(t, o)
	first := connectWorld(t, api)
	got.becomes(t, "one=1")
	second := connectWorld(t, api)
	got.becomes(t, "one=2") // the newest counts
	second()
	got.becomes(t, "one=1")
	eventually(t, "both were acknowledged", func() error {
		if server.acked.Load() < 2 {
			return errors.New("they were not")
		}
		return nil
	})
	first()
	stop()

	var kept table
	o.Follow = map[string]relay.Follower{followed: kept.take}
	api, _ = start(t, o)
	kept.mu.Lock()
	if kept.has["one"] == "" {
		t.Error("what is kept is not told")
	}
	kept.mu.Unlock()
	connectWorld(t, api)
	kept.becomes(t, "") // the third stream has none
}

// TestFollowTypesApart: the end of a proxy's stream leaves what was followed there alone, while a
// program has a stream on which the type is not followed.
func TestFollowTypesApart(t *testing.T) {
	t.Parallel()
	server := startNames(t, map[string]string{"x": "1", "y": "1"}, map[string]string{"x": "2"})
	var got table
	r := relay.New(relay.Options{Servers: relay.Servers{Addresses: []string{server.address}}, Node: "web", Follow: map[string]relay.Follower{followed: got.take}})
	api, _ := serve(t, r)
	c := connect(t, api, nil)
	c.take("1")
	got.becomes(t, "x=1 y=1")
	connectWorld(t, api)
	if err := c.CloseSend(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the proxy's stream has ended", func() error {
		if n := len(r.Clients()); n != 1 {
			return fmt.Errorf("there are %d", n)
		}
		return nil
	})
	got.becomes(t, "x=1 y=1")
}

// table is what a follower has been told.
type table struct {
	mu   sync.Mutex
	has  map[string]string
	told int
}

func (f *table) take(set []*discoveryv3.Resource, removed []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.told++
	if f.has == nil {
		f.has = map[string]string{}
	}
	for _, r := range set {
		f.has[r.GetName()] = r.GetVersion()
	}
	for _, name := range removed {
		delete(f.has, name)
	}
}

// becomes waits until the table is as it should be: "NAME=VERSION ...".
func (f *table) becomes(t *testing.T, want string) {
	t.Helper()
	eventually(t, want, func() error {
		f.mu.Lock()
		defer f.mu.Unlock()
		var out []string
		for _, name := range slices.Sorted(maps.Keys(f.has)) {
			out = append(out, name+"="+f.has[name])
		}
		if got := strings.Join(out, " "); got != want {
			return fmt.Errorf("it is %q", got)
		}
		return nil
	})
}

// TestFollow: the agent follows a type on its proxy's stream, and gets what is kept of it when no
// server is there. The proxy sees nothing of it.
func TestFollow(t *testing.T) {
	t.Parallel()
	server := startNames(t, map[string]string{"x": "1", "y": "1"})
	dir := t.TempDir()
	var got table
	o := relay.Options{Servers: relay.Servers{Addresses: []string{server.address}}, Store: openStore(t, dir, time.Hour), SaveEvery: time.Millisecond, Node: "web", Follow: map[string]relay.Follower{followed: got.take}}
	api, stop := start(t, o)
	c := connect(t, api, nil)
	c.take("1")
	got.becomes(t, "x=1 y=1")
	eventually(t, "the proxy has answered", func() error {
		if server.acked.Load() == 0 {
			return errors.New("it has not")
		}
		return nil
	})
	stop()

	o.Servers.Addresses, o.Patience = []string{nobody(t)}, 50*time.Millisecond
	var kept table
	o.Follow = map[string]relay.Follower{followed: kept.take}
	api, _ = start(t, o)
	kept.becomes(t, "x=1 y=1") // before the proxy is there
	connect(t, api, nil).take("1")
	kept.becomes(t, "x=1 y=1")
}

// TestFollowGoesOn: a new server is told what the agent has, so it says what is gone, and only
// that.
func TestFollowGoesOn(t *testing.T) {
	t.Parallel()
	first := startNames(t, map[string]string{"x": "1", "y": "1"})
	second := startNames(t, map[string]string{"y": "1", "z": "1"})
	var got table
	api, _ := start(t, relay.Options{Servers: relay.Servers{Addresses: []string{first.address, second.address}}, Node: "web", Follow: map[string]relay.Follower{followed: got.take}})
	c := connect(t, api, nil)
	c.take("1")
	eventually(t, "a first table", func() error {
		got.mu.Lock()
		defer got.mu.Unlock()
		if got.told == 0 {
			return errors.New("it was told nothing")
		}
		return nil
	})
	first.stop()
	got.becomes(t, "y=1 z=1") // also if the second was tried first
}

// TestFollowTheNewest: of two streams the newest counts, and when it ends the other one does.
func TestFollowTheNewest(t *testing.T) {
	t.Parallel()
	server := startNames(t, map[string]string{"x": "1"}, map[string]string{"y": "1"})
	var got table
	api, _ := start(t, relay.Options{Servers: relay.Servers{Addresses: []string{server.address}}, Node: "web", Follow: map[string]relay.Follower{followed: got.take}})
	connect(t, api, nil).take("1")
	got.becomes(t, "x=1")
	next := connect(t, api, nil)
	next.take("1")
	got.becomes(t, "y=1")
	if err := next.CloseSend(); err != nil {
		t.Fatal(err)
	}
	got.becomes(t, "x=1")
}

// TestWhatAClientRefusesIsShown: the words of a client that refuses a response, until it takes one of
// the type.
func TestWhatAClientRefusesIsShown(t *testing.T) {
	t.Parallel()
	server := startNames(t, map[string]string{"x": "1"})
	r := relay.New(relay.Options{Servers: relay.Servers{Addresses: []string{server.address}}, Node: "web"})
	api, _ := serve(t, r)
	c := connect(t, api, nil)
	shows := func(want string) {
		t.Helper()
		eventually(t, "refused: "+want, func() error {
			if all := r.Clients(); len(all) != 1 || all[0].Refused != want {
				return fmt.Errorf("%+v", all)
			}
			return nil
		})
	}
	first, err := c.Recv()
	if err != nil {
		t.Fatal(err)
	}
	c.say(&discoveryv3.DeltaDiscoveryRequest{ResponseNonce: first.GetNonce(), ErrorDetail: &rpcstatus.Status{Message: "cannot bind"}})
	shows("cannot bind")
	c.say(&discoveryv3.DeltaDiscoveryRequest{ResourceNamesSubscribe: []string{"b"}}) // that answers nothing
	shows("cannot bind")
	c.say(&discoveryv3.DeltaDiscoveryRequest{ResponseNonce: first.GetNonce()})
	shows("")
}
