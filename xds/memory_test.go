package xds_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/portolan-mesh/portolan/xds"
	"github.com/portolan-mesh/portolan/xds/generate/catalogue"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/resource"
	"github.com/portolan-mesh/portolan/xds/stream/streamtest"
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

func (b bulky) Build(_ *mesh.View, name string) (*resource.Resource, error) {
	return streamtest.Resource(b.typeURL, name, strings.Repeat("x", bulkySize))
}

// footprint is what the process holds, stacks included.
func footprint() int {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc + m.StackInuse)
}

// TestSlowReadersShareWhatTheyAreSent: clients that are sent six megabytes, and
// read nothing of it, hold on to the same six.
func TestSlowReadersShareWhatTheyAreSent(t *testing.T) {
	const clients, limit = 60, 1 << 20
	s := xdstest.NewServer(t, []xds.ResourceType{
		{Name: "CDS", Generator: bulky{plain{xdstest.ClusterType}}, Full: true},
	})
	sent := func(n int) {
		t.Helper()
		xdstest.Eventually(t, "all to be sent to", func() bool {
			proxies := s.XDS.Proxies()
			return len(proxies) == n && !slices.ContainsFunc(proxies, func(p xds.ProxyStatus) bool { return p.Types[0].Sent.IsZero() })
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

// quietClients is the environment variable that has the test's binary be clients
// of a server at an address, and nothing else: what they take is not the server's.
const quietClients = "PORTOLAN_TEST_QUIET_CLIENTS"

// beQuietClients connects the proxies that standard input names, a line each, and
// tells each when it has what it asked for, until standard input ends.
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
		if err := beQuietClient(ctx, connection, lines.Text()); err != nil {
			return err
		}
		fmt.Println(lines.Text())
	}
	return lines.Err()
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

// TestAnIdleConnectionIsSmall: one that has what it asked for takes less than
// 100 KiB, with all that gRPC has for it.
func TestAnIdleConnectionIsSmall(t *testing.T) {
	const connections, warm, limit = 500, 20, 100 << 10
	s := xdstest.NewServer(t, catalogue.Types())
	revision := s.Apply(services(200))
	xdstest.Eventually(t, "the services are published", func() bool { return s.XDS.Context().Revision() >= revision })

	clients := exec.CommandContext(t.Context(), os.Args[0])
	clients.Env = append(os.Environ(), quietClients+"="+s.Address)
	clients.Stderr = os.Stderr
	in, err := clients.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := clients.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := clients.Start(); err != nil {
		t.Fatal(err)
	}
	done := bufio.NewScanner(out)
	connect := func(from, to int) {
		t.Helper()
		for i := from; i < to; i++ {
			if _, err := fmt.Fprintf(in, "10.3.%d.%d\n", i/250, i%250+1); err != nil || !done.Scan() {
				t.Fatalf("client %d is not served: %v", i, errors.Join(err, done.Err()))
			}
		}
		xdstest.Eventually(t, "all to be in step", func() bool {
			return !slices.ContainsFunc(s.XDS.Proxies(), func(p xds.ProxyStatus) bool { return p.Types[2].Answered.IsZero() })
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
	if err := errors.Join(in.Close(), clients.Wait()); err != nil {
		t.Errorf("the clients: %v", err)
	}
}

// TestReportingNoChangeCostsNothing, as a connection does so after all it hears.
func TestReportingNoChangeCostsNothing(t *testing.T) {
	s := xdstest.NewServer(t, catalogue.Types())
	if n := s.XDS.ReportAllocations(xdstest.Node{}.Proxy(t)); n > 0 {
		t.Errorf("%.0f allocations", n)
	}
}
