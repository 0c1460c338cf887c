package xds_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"

	"github.com/portolan-mesh/portolan/xds"
	"github.com/portolan-mesh/portolan/xds/delivery/protocoltest"
	"github.com/portolan-mesh/portolan/xds/generate"
	"github.com/portolan-mesh/portolan/xds/generate/catalogue"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/progress"
	"github.com/portolan-mesh/portolan/xds/resource"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// bulky is a generator of many large resources.
type bulky struct{ plain }

const (
	bulkyCount = 300
	bulkySize  = 20 << 10
)

func (bulky) Affected(_ *mesh.View, d mesh.Delta) iter.Seq[string] {
	return func(yield func(string) bool) {
		for i := range bulkyCount {
			if !d.Whole || !yield(fmt.Sprintf("bulky-%03d", i)) {
				return
			}
		}
	}
}

func (b bulky) Build(_ *mesh.View, name string) (proto.Message, []resource.Need, error) {
	message, needs := protocoltest.Message(b.typeURL, name, strings.Repeat("x", bulkySize))
	return message, needs, nil
}

// footprint returns how many bytes the process holds, stacks included.
func footprint() int {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc + m.StackInuse)
}

// TestSlowReadersShareWhatTheyAreSent: the server sends many clients six megabytes, of
// which they read nothing. It holds these six megabytes once.
func TestSlowReadersShareWhatTheyAreSent(t *testing.T) {
	const clients, limit = 60, 1 << 20
	s := xdstest.NewServer(t, []generate.ResourceType{
		{Name: "CDS", Generator: bulky{plain{xdstest.ClusterType}}, Full: true},
	})
	sent := func(n int) {
		t.Helper()
		xdstest.Eventually(t, "all to be sent to", func() bool {
			proxies := s.XDS.Proxies()
			return len(proxies) == n && !slices.ContainsFunc(proxies, func(p progress.ProxyStatus) bool { return p.Types[0].Sent.IsZero() })
		})
	}
	deaf(t, s, "10.0.1.1")
	sent(1)
	before := footprint()
	for i := range clients {
		deaf(t, s, fmt.Sprintf("10.0.2.%d", i))
	}
	sent(clients + 1)
	each := (footprint() - before) / clients
	t.Logf("a client that reads nothing of %d KiB takes %d KiB, its own side included", bulkyCount*bulkySize>>10, each>>10)
	if each > limit {
		t.Errorf("that is more than %d KiB", limit>>10)
	}
}

// quietClients is the environment variable that makes the test's binary run clients of the
// server at its address, and nothing else. So the memory of the clients does not count as
// the server's.
const quietClients = "PORTOLAN_TEST_QUIET_CLIENTS"

// beQuietClients connects a client for each line of standard input, until that ends. It
// prints the line once the client is done with its requests.
func beQuietClients(address string) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		connection, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			return err
		}
		defer func() { _ = connection.Close() }()
		be := beQuietClient
		if lines.Text() == waitingClient {
			be = beWaitingClient
		}
		if err := be(ctx, connection, lines.Text()); err != nil {
			return err
		}
		fmt.Println(lines.Text())
	}
	return lines.Err()
}

// quiet is a process of quiet clients.
type quiet struct {
	t       *testing.T
	process *exec.Cmd
	in      io.WriteCloser
	done    *bufio.Scanner
}

func startQuietClients(t *testing.T, address string) quiet {
	t.Helper()
	c := quiet{t: t, process: exec.CommandContext(t.Context(), os.Args[0])}
	c.process.Env = append(os.Environ(), quietClients+"="+address)
	c.process.Stderr = os.Stderr
	in, err := c.process.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.process.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.process.Start(); err != nil {
		t.Fatal(err)
	}
	c.in, c.done = in, bufio.NewScanner(out)
	return c
}

// say adds a client for a line, and waits until the process prints the line.
func (c quiet) say(line string) {
	c.t.Helper()
	if _, err := fmt.Fprintln(c.in, line); err != nil || !c.done.Scan() {
		c.t.Fatalf("client %s is not served: %v", line, errors.Join(err, c.done.Err()))
	}
}

func (c quiet) end() {
	c.t.Helper()
	if err := errors.Join(c.in.Close(), c.process.Wait()); err != nil {
		c.t.Errorf("the clients: %v", err)
	}
}

// beQuietClient takes all clusters, endpoints and listeners of a server.
func beQuietClient(ctx context.Context, connection *grpc.ClientConn, ip string) error {
	ads, err := discoveryv3.NewAggregatedDiscoveryServiceClient(connection).DeltaAggregatedResources(ctx)
	if err != nil {
		return err
	}
	q := &discoveryv3.DeltaDiscoveryRequest{Node: node(ip)}
	for _, q.TypeUrl = range []string{xdstest.ClusterType, xdstest.EndpointType, xdstest.ListenerType} {
		if err := ads.Send(q); err != nil {
			return err
		}
		r, err := ads.Recv()
		if err != nil || r.GetTypeUrl() != q.GetTypeUrl() || len(r.GetResources()) == 0 {
			return fmt.Errorf("a response of %s, not of %s: %w", r.GetTypeUrl(), q.GetTypeUrl(), err)
		}
		if err := ads.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: q.GetTypeUrl(), ResponseNonce: r.GetNonce()}); err != nil {
			return err
		}
		q = &discoveryv3.DeltaDiscoveryRequest{}
		if r.GetTypeUrl() == xdstest.ClusterType {
			for _, x := range r.GetResources() {
				q.ResourceNamesSubscribe = append(q.ResourceNamesSubscribe, x.GetName())
			}
		}
	}
	return nil
}

// waitingClient is the line for a client that states many bytes of versions and waits for a
// slot.
const waitingClient = "waits"

// beWaitingClient sends a megabyte of versions, as far as the server reads it.
func beWaitingClient(ctx context.Context, connection *grpc.ClientConn, _ string) error {
	ads, err := discoveryv3.NewAggregatedDiscoveryServiceClient(connection).DeltaAggregatedResources(ctx)
	if err != nil {
		return err
	}
	go func() { // it ends with its process
		_ = ads.Send(&discoveryv3.DeltaDiscoveryRequest{
			Node: node("10.0.0.1"), TypeUrl: xdstest.ClusterType,
			InitialResourceVersions: map[string]string{"none": strings.Repeat("x", 1<<20)},
		})
	}()
	return nil
}

// TestAProxyThatWaitsIsSmall: a proxy that waits for its first sync takes less than 192
// KiB, including what it has sent already, however much it has to send.
func TestAProxyThatWaitsIsSmall(t *testing.T) {
	const waiting, limit = 300, 192 << 10
	s := xdstest.NewServer(t, catalogue.Types(), func(o *xds.Options) {
		o.MaxFirstSyncs, o.MaxWaiting, o.SyncSilence, o.SyncLimit = 1, waiting, time.Hour, time.Hour
	})
	revision := s.Apply(service("reviews", 9080, "10.1.0.1"))
	xdstest.Eventually(t, "the service is published", func() bool { return s.XDS.Context().Revision() >= revision })
	first := xdstest.Dial(t, s.Address, xdstest.ClientOptions{Node: node("10.0.0.1"), Manual: true})
	first.Subscribe(xdstest.ClusterType)
	first.AwaitAnswer(xdstest.ClusterType, 0)
	c := startQuietClients(t, s.Address)
	before := footprint()
	for i := range waiting {
		c.say(waitingClient)
		xdstest.Eventually(t, "the stream", func() bool { return s.XDS.Connections() == i+2 })
	}
	each := 0
	xdstest.Eventually(t, "as much is said as may be", func() bool {
		last := each
		each = (footprint() - before) / waiting
		return each-last < 1<<10
	})
	t.Logf("a proxy that waits takes %d KiB", each>>10)
	if each > limit {
		t.Errorf("that is more than %d KiB", limit>>10)
	}
	c.end()
}

// TestAnIdleConnectionIsSmall: a connection whose client has all that it requested takes
// less than 100 KiB, including what gRPC holds for it.
func TestAnIdleConnectionIsSmall(t *testing.T) {
	const connections, warm, limit = 500, 20, 100 << 10
	s := xdstest.NewServer(t, catalogue.Types())
	revision := s.Apply(services(200))
	xdstest.Eventually(t, "the services are published", func() bool { return s.XDS.Context().Revision() >= revision })

	c := startQuietClients(t, s.Address)
	connect := func(from, to int) {
		t.Helper()
		for i := from; i < to; i++ {
			c.say(fmt.Sprintf("10.3.%d.%d", i/250, i%250+1))
		}
		xdstest.Eventually(t, "all to be in step", func() bool {
			return !slices.ContainsFunc(s.XDS.Proxies(), func(p progress.ProxyStatus) bool { return p.Types[2].Answered.IsZero() })
		})
	}
	connect(0, warm)
	before := footprint()
	connect(warm, warm+connections)
	each := (footprint() - before) / connections
	t.Logf("an idle connection takes %d KiB", each>>10)
	if each > limit {
		t.Errorf("that is more than %d KiB", limit>>10)
	}
	c.end()
}

// TestReportingNoChangeCostsNothing: a connection reports after each turn.
func TestReportingNoChangeCostsNothing(t *testing.T) {
	s := xdstest.NewServer(t, catalogue.Types())
	if n := s.XDS.ReportAllocations(xdstest.Node{}.Proxy(t)); n > 0 {
		t.Errorf("%.0f allocations", n)
	}
}
