package integration

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/portolan-mesh/portolan/integration/load/raw"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// soon is how long a new proxy may take to be synced during an attack.
const soon = 5 * time.Second

// attack has clients that harm a server until end is called.
type attack struct {
	ctx     context.Context
	end     func() // may be called repeatedly
	running sync.WaitGroup
}

func newAttack(t testing.TB) *attack {
	ctx, cancel := context.WithCancel(context.Background())
	a := &attack{ctx: ctx}
	a.end = func() { cancel(); a.running.Wait() }
	t.Cleanup(a.end)
	return a
}

// streams opens delta ADS streams that each run do, a number of them on each connection. It
// waits until all are open.
func (a *attack) streams(t testing.TB, s *server, connections, each int, do func(i int, ads discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesClient)) {
	t.Helper()
	var open sync.WaitGroup
	for c := range connections {
		connection, err := grpc.NewClient(s.xds, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		a.running.Go(func() { <-a.ctx.Done(); _ = connection.Close() })
		client := discoveryv3.NewAggregatedDiscoveryServiceClient(connection)
		for i := range each {
			open.Add(1)
			a.running.Go(func() {
				ads, err := client.DeltaAggregatedResources(a.ctx)
				open.Done()
				if err == nil {
					do(c*each+i, ads)
				}
			})
		}
	}
	open.Wait()
}

// fragments opens streams whose clients begin a request of a megabyte and never continue.
func (a *attack) fragments(t testing.TB, s *server, connections, each int) {
	t.Helper()
	var headers bytes.Buffer
	encoder := hpack.NewEncoder(&headers)
	encoder.SetMaxDynamicTableSize(0) // makes the headers of all streams equal
	for _, h := range [][2]string{
		{":method", "POST"}, {":scheme", "http"}, {":path", deltaADS}, {":authority", s.xds}, {"content-type", "application/grpc"}, {"te", "trailers"},
	} {
		if err := encoder.WriteField(hpack.HeaderField{Name: h[0], Value: h[1], Sensitive: true}); err != nil {
			t.Fatal(err)
		}
	}
	for range connections {
		c, err := (&net.Dialer{}).DialContext(a.ctx, "tcp", s.xds)
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		out.WriteString(http2.ClientPreface)
		framer := http2.NewFramer(&out, nil)
		_ = framer.WriteSettings()    // a buffer takes all
		_ = framer.WriteSettingsAck() // acknowledges the settings that will come
		for i := range each {
			id := uint32(2*i + 1)
			_ = framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: headers.Bytes(), EndHeaders: true})
			_ = framer.WriteData(id, false, []byte{0, 0, 0x10, 0, 0, 0xa})
		}
		if _, err := out.WriteTo(c); err != nil {
			t.Fatal(err)
		}
		a.running.Go(func() { _, _ = io.Copy(io.Discard, c) })
		a.running.Go(func() { <-a.ctx.Done(); _ = c.Close() })
	}
}

// asks requests all clusters on a stream, and reads nothing of the answer except what gRPC
// buffers.
func asks(i int, ads discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesClient) {
	_ = ads.Send(&discoveryv3.DeltaDiscoveryRequest{
		TypeUrl: xdstest.ClusterType, Node: xdstest.NewNode("sidecar", fmt.Sprintf("10.9.%d.%d", i/250, i%250+1), fmt.Sprintf("attacker-%d", i), "shop", nil),
	})
}

// expectNewcomer fails if a new proxy is not synced soon.
func expectNewcomer(t testing.TB, s *server, name string) {
	t.Helper()
	began := time.Now()
	c := xdstest.Dial(t, s.xds, xdstest.ClientOptions{Node: xdstest.NewNode("sidecar", "10.8.0.1", name, "shop", nil), Variant: protocol.Delta})
	defer c.Close()
	c.Subscribe(xdstest.ClusterType)
	c.Subscribe(xdstest.ListenerType)
	c.AwaitAnswer(xdstest.ListenerType, 0)
	took := time.Since(began)
	t.Logf("%s is synced after %s", name, took.Round(time.Millisecond))
	if late(took, soon) {
		t.Errorf("%s is synced after %s: want %s at most", name, took, soon)
	}
}

// TestStreamsThatStallHoldUpNobody: streams that request nothing get no turn, and those that
// read no answer lose theirs.
func TestStreamsThatStallHoldUpNobody(t *testing.T) {
	s, x := startServer(t, serverOptions{}), newShop(t)
	s.apply(x.all(50, 50))
	const connections, each = 8, 100
	for what, begin := range map[string]func(t *testing.T, a *attack){
		"silent": func(t *testing.T, a *attack) {
			a.streams(t, s, connections, each, func(int, discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesClient) {})
		},
		"without answers":      func(t *testing.T, a *attack) { a.streams(t, s, connections, each, asks) },
		"in the middle of one": func(t *testing.T, a *attack) { a.fragments(t, s, connections, each) },
	} {
		t.Run(what, func(t *testing.T) {
			a := newAttack(t)
			begin(t, a)
			eventually(t, "the streams are open", func() error {
				if n := s.gauge("portolan_connected_proxies"); n < 800 {
					return fmt.Errorf("%v are", n)
				}
				return nil
			})
			expectNewcomer(t, s, "newcomer")
			a.end()
			eventually(t, "the streams have gone", func() error {
				if n := s.gauge("portolan_connected_proxies"); n > 0 {
					return fmt.Errorf("%v have not", n)
				}
				return nil
			})
		})
	}
}

// TestOneConnectionHasFewStreams: the server accepts no more streams on a connection than the
// limit.
func TestOneConnectionHasFewStreams(t *testing.T) {
	s := startServer(t, serverOptions{args: []string{"--max-streams-per-connection", "10"}})
	a := newAttack(t)
	connection, err := grpc.NewClient(s.xds, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	a.running.Go(func() { <-a.ctx.Done(); _ = connection.Close() })
	client := discoveryv3.NewAggregatedDiscoveryServiceClient(connection)
	for i := range 10 {
		ads, err := client.DeltaAggregatedResources(a.ctx)
		if err != nil {
			t.Fatal(err)
		}
		asks(i, ads)
		if _, err := ads.Recv(); err != nil { // the client knows the limit now
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(a.ctx, 500*time.Millisecond)
	defer cancel()
	if _, err := client.DeltaAggregatedResources(ctx); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("an eleventh stream: %v", err)
	}
	expectNewcomer(t, s, "newcomer")
}

// namesOf is a request for n names that do not exist.
func namesOf(t testing.TB, node string, from, n int) []byte {
	t.Helper()
	q := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: xdstest.EndpointType, Node: xdstest.NewNode("sidecar", "10.9.0.1", node, "shop", nil)}
	for i := range n {
		q.ResourceNamesSubscribe = append(q.ResourceNamesSubscribe, fmt.Sprintf("outbound|80||name-%08d.shop.example", from+i))
	}
	text, err := proto.Marshal(q)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

const deltaADS = "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources"

// ask opens a stream that requests names, and reads until the server or ctx ends it.
func ask(ctx context.Context, s *server, message []byte) error {
	c, err := raw.Open(ctx, s.xds, deltaADS)
	if err != nil {
		return err
	}
	defer c.Close()
	c.Send(message)
	if err := c.Flush(); err != nil {
		return err
	}
	for {
		if _, err := c.Receive(); err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return err
		}
	}
}

// TestNamesAreBounded, for one stream and for all: a stream that requests too many ends with
// the limit in its error. If all together have too many, the largest are ended.
func TestNamesAreBounded(t *testing.T) {
	s := startServer(t, serverOptions{args: []string{"--stream-memory", "20Mi", "--streams-memory", "60Mi"}})
	expectNewcomer(t, s, "before")
	before := s.gauge("process_resident_memory_bytes")
	a := newAttack(t)

	err := ask(a.ctx, s, namesOf(t, "one", 0, 100_000))
	if err == nil || !strings.Contains(err.Error(), "code 8") || !strings.Contains(err.Error(), "--stream-memory") {
		t.Errorf("a stream that asks for 100,000 names ends with %v", err)
	}
	ended := make(chan error, 8)
	for i := range cap(ended) {
		a.running.Go(func() { ended <- ask(a.ctx, s, namesOf(t, fmt.Sprint("many-", i), i*30_000, 30_000)) })
	}
	for range cap(ended) - 3 {
		select {
		case err := <-ended:
			if err == nil || !strings.Contains(err.Error(), "code 8") || !strings.Contains(err.Error(), "--streams-memory") {
				t.Errorf("a stream of many ends with %v", err)
			}
		case <-time.After(patience):
			t.Fatal("eight streams of 18 MB each are within 60 MB")
		}
	}
	expectNewcomer(t, s, "newcomer")
	grown := s.gauge("process_resident_memory_bytes") - before
	t.Logf("resident memory has grown by %.0f MiB", grown/(1<<20))
	if grown > 300<<20 {
		t.Errorf("resident memory has grown by %.0f MiB", grown/(1<<20))
	}
	a.end()
	eventually(t, "nothing is held for them", func() error {
		if n := s.gauge("portolan_streams_memory_bytes"); n > 0 {
			return errors.New(fmt.Sprint(n))
		}
		return nil
	})
}

// deafTo opens connections to the config API that request a path and never read.
func (a *attack) deafTo(t testing.TB, s *server, n int, path string) {
	t.Helper()
	for range n {
		c, err := (&net.Dialer{}).DialContext(a.ctx, "tcp", s.api)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.(*net.TCPConn).SetReadBuffer(4 << 10); err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n", path); err != nil {
			t.Fatal(err)
		}
		a.running.Go(func() { <-a.ctx.Done(); _ = c.Close() })
	}
}

// heavy is a ServiceEntry with about 10 endpoints to the kilobyte.
func heavy(endpoints, version int) string {
	var b strings.Builder
	fmt.Fprintf(&b, `{"apiVersion":"networking.istio.io/v1","kind":"ServiceEntry","metadata":{"name":"heavy","namespace":"shop"},`+
		`"spec":{"hosts":["heavy.shop.example"],"location":"MESH_INTERNAL","resolution":"STATIC","ports":[{"number":80,"name":"http","protocol":"HTTP"}],"endpoints":[`)
	for i := range endpoints {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"address":"10.%d.%d.%d","labels":{"app":"heavy","version":"v%d"},"locality":"region/zone"}`, 100+i/62500, i/250%250, i%250, version)
	}
	b.WriteString("]}}")
	return b.String()
}

// putHeavy creates or replaces the heavy object, and returns how long that took.
func (s *server) putHeavy(t testing.TB, document string) time.Duration {
	t.Helper()
	return s.putObject(t, "heavy", document)
}

// putObject is putHeavy for a ServiceEntry with any name.
func (s *server) putObject(t testing.TB, name, document string) time.Duration {
	t.Helper()
	began := time.Now()
	const path = "/apis/networking.istio.io/v1/namespaces/shop/serviceentries"
	for _, request := range [][2]string{{http.MethodPut, path + "/" + name}, {http.MethodPost, path}} {
		r, err := http.NewRequestWithContext(t.Context(), request[0], s.url(request[1]), strings.NewReader(document))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		response, err := s.client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		switch {
		case err != nil:
			t.Fatal(err)
		case response.StatusCode == http.StatusNotFound:
			continue
		case response.StatusCode >= 300:
			t.Fatalf("PUT: %s: %.500s", response.Status, body)
		}
		break
	}
	return time.Since(began)
}

// resident returns the resident memory of a server in bytes.
func (s *server) resident() float64 { return s.gauge("process_resident_memory_bytes") }

// TestWatchesThatNeverReadHarmNobody: a large object for many watches is encoded once, and
// writes of it are as fast as ever.
func TestWatchesThatNeverReadHarmNobody(t *testing.T) {
	s := startServer(t, serverOptions{})
	for i := range 3 { // to measure without the watches
		s.putHeavy(t, heavy(4_000, i))
	}
	before := s.resident()
	a := newAttack(t)
	a.deafTo(t, s, 300, "/apis/networking.istio.io/v1/serviceentries?watch=true")
	eventually(t, "the watches are open", func() error {
		if n := s.gauge("portolan_api_watchers"); n < 300 {
			return fmt.Errorf("%v are", n)
		}
		return nil
	})
	for i := range 5 {
		if took := s.putHeavy(t, heavy(4_000, 10+i)); late(took, soon) {
			t.Errorf("a write is answered after %s", took)
		}
	}
	grown := s.resident() - before
	t.Logf("resident memory has grown by %.0f MiB", grown/(1<<20))
	if grown > 150<<20 {
		t.Errorf("resident memory has grown by %.0f MiB", grown/(1<<20))
	}
	expectNewcomer(t, s, "newcomer")
}

// TestHistoryOfALargeObjectIsBounded: old versions are dropped when they take too much memory.
// A watch from a dropped version gets an error, and has to list again.
func TestHistoryOfALargeObjectIsBounded(t *testing.T) {
	s := startServer(t, serverOptions{args: []string{"--history-memory", "16Mi"}})
	s.putHeavy(t, heavy(4_000, 0))
	first := s.revision()
	for i := range 3 {
		s.putHeavy(t, heavy(4_000, 1+i))
	}
	before := s.resident()
	for i := range 30 {
		s.putHeavy(t, heavy(4_000, 10+i))
	}
	grown := s.resident() - before
	t.Logf("resident memory has grown by %.0f MiB", grown/(1<<20))
	if grown > 100<<20 {
		t.Errorf("resident memory has grown by %.0f MiB", grown/(1<<20))
	}
	path := fmt.Sprintf("/apis/networking.istio.io/v1/serviceentries?watch=true&timeoutSeconds=1&resourceVersion=%d", first+1)
	if answer, err := s.get(path, nil); err == nil && !strings.Contains(string(answer), `"code":410`) || err != nil && !strings.Contains(err.Error(), "410") {
		t.Errorf("a watch from what was forgotten is answered %.300s, %v", answer, err)
	}
}
