package xds_test

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"

	"github.com/portolan-mesh/portolan/storage/host"
	"github.com/portolan-mesh/portolan/xds"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/delivery/protocoltest"
	"github.com/portolan-mesh/portolan/xds/generate"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/resource"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// TestConformance checks the server against the rules of the protocol, on aggregated
// streams over gRPC.
func TestConformance(t *testing.T) {
	t.Parallel()
	protocoltest.Run(t, protocoltest.Aggregated, newPlainServer)
}

// TestConformanceOfTheServicesForOneType is the same on streams of one type.
func TestConformanceOfTheServicesForOneType(t *testing.T) {
	t.Parallel()
	protocoltest.Run(t, protocoltest.PerType, newPlainServer)
}

// plainServer is a whole control plane with plain resources: the content of each is the
// name of a service's port.
type plainServer struct {
	tb     testing.TB
	server *xdstest.Server
	has    map[string]bool // services by name
}

func newPlainServer(tb testing.TB) protocoltest.Server {
	types := []generate.ResourceType{
		{Name: "CDS", Generator: plain{protocoltest.Clusters}, Full: true, Needs: []resource.Need{{TypeURL: protocoltest.Endpoints, Kind: resource.Warm}}},
		{Name: "EDS", Generator: waited{plain{protocoltest.Endpoints}}},
		{Name: "VHDS", Generator: plain{protocoltest.Hosts}, Full: true},
		{Name: "SDS", Generator: plain{protocoltest.Secrets}},
	}
	return &plainServer{tb: tb, server: xdstest.NewServer(tb, types, soon), has: map[string]bool{}}
}

// soon makes the server withdraw resources soon, though a client never requests the types
// that may need them.
func soon(o *xds.Options) { o.WithdrawLimit = 50 * time.Millisecond }

func serviceOf(typeURL, name string) string {
	return name + "-" + strings.ToLower(typeURL[strings.LastIndexByte(typeURL, '.')+1:])
}

func (s *plainServer) Offer(typeURL string, content map[string]string) {
	s.tb.Helper()
	var put, gone []string
	for _, name := range protocoltest.Names() {
		service := serviceOf(typeURL, name)
		c, offered := content[name]
		document := fmt.Sprintf(`apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: %[1]s}
spec: {hosts: [%[1]s.example], ports: [{number: 80, name: v%[2]s, protocol: TCP}], resolution: STATIC, location: MESH_INTERNAL}
`, service, c)
		if offered {
			put = append(put, document)
		} else if s.has[service] {
			gone = append(gone, document)
		}
		s.has[service] = offered
	}
	ops := append(xdstest.Ops(s.tb, put...), xdstest.Removals(s.tb, gone...)...)
	if len(ops) == 0 {
		return
	}
	revision := s.server.Batch(ops)
	xdstest.Eventually(s.tb, "the content is published", func() bool { return s.server.XDS.Context().Revision() >= revision })
}

// plain is a generator of plain resources.
type plain struct{ typeURL string }

func (p plain) TypeURL() string { return p.typeURL }

func (plain) Affected(*mesh.View, mesh.Delta) iter.Seq[string] {
	return slices.Values(protocoltest.Names())
}

func (p plain) Build(v *mesh.View, name string) (proto.Message, []resource.Need, error) {
	row := v.Service(host.Name(serviceOf(p.typeURL, name) + ".example"))
	if row == nil {
		return nil, nil, nil
	}
	message, needs := protocoltest.Message(p.typeURL, name, row.Services[0].Ports[0].Name[1:])
	return message, needs, nil
}

// waited is a plain generator that answers unknown names with empty resources.
type waited struct{ plain }

var _ generate.Emptier = waited{}

func (w waited) Empty(name string) (proto.Message, []resource.Need, error) {
	message, needs := protocoltest.Message(w.typeURL, name, "")
	return message, needs, nil
}

// plainConn is a stream over gRPC.
type plainConn struct {
	tb      testing.TB
	typeURL string // empty for an aggregated stream
	wire    plainWire
	replies chan *protocoltest.Reply
	close   func()
	named   bool // the node was sent
	probes  []string
	nonce   string // of the last probe's answer
}

func (s *plainServer) Connect(variant protocol.Variant, typeURL string) protocoltest.Conn {
	s.tb.Helper()
	connection, err := grpc.NewClient(s.server.Address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		s.tb.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	c := &plainConn{tb: s.tb, typeURL: typeURL, replies: make(chan *protocoltest.Reply, 100)}
	desc := &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}
	g, err := connection.NewStream(ctx, desc, methodOf(variant, typeURL))
	if err != nil {
		s.tb.Fatal(err)
	}
	if variant == protocol.Delta {
		c.wire = plainDelta{&grpc.GenericClientStream[discoveryv3.DeltaDiscoveryRequest, discoveryv3.DeltaDiscoveryResponse]{ClientStream: g}}
	} else {
		c.wire = plainWorld{&grpc.GenericClientStream[discoveryv3.DiscoveryRequest, discoveryv3.DiscoveryResponse]{ClientStream: g}}
	}
	var reading sync.WaitGroup
	reading.Go(func() {
		defer close(c.replies)
		for {
			r, err := c.wire.receive()
			if err != nil {
				return
			}
			c.replies <- r
		}
	})
	c.close = sync.OnceFunc(func() {
		cancel()
		_ = connection.Close()
		reading.Wait()
	})
	s.tb.Cleanup(c.close)
	return c
}

func methodOf(variant protocol.Variant, typeURL string) string {
	verb := map[protocol.Variant]string{protocol.Delta: "Delta", protocol.StateOfTheWorld: "Stream"}[variant]
	switch typeURL {
	case protocoltest.Clusters:
		return "/envoy.service.cluster.v3.ClusterDiscoveryService/" + verb + "Clusters"
	case protocoltest.Endpoints:
		return "/envoy.service.endpoint.v3.EndpointDiscoveryService/" + verb + "Endpoints"
	case protocoltest.Hosts:
		return "/envoy.service.route.v3.VirtualHostDiscoveryService/" + verb + "VirtualHosts"
	case xdstest.ListenerType:
		return "/envoy.service.listener.v3.ListenerDiscoveryService/" + verb + "Listeners"
	case xdstest.RouteType:
		return "/envoy.service.route.v3.RouteDiscoveryService/" + verb + "Routes"
	case protocoltest.Secrets:
		return "/envoy.service.secret.v3.SecretDiscoveryService/" + verb + "Secrets"
	}
	return "/envoy.service.discovery.v3.AggregatedDiscoveryService/" + verb + "AggregatedResources"
}

func (c *plainConn) Send(typeURL string, q protocol.Request) {
	c.tb.Helper()
	if typeURL == c.typeURL && !c.named {
		typeURL = "" // which a stream of one type need not say
	}
	if err := c.wire.send(typeURL, q, !c.named); err != nil {
		c.tb.Fatalf("send: %v", err)
	}
	c.named = true
}

func (c *plainConn) Receive() *protocoltest.Reply {
	c.tb.Helper()
	select {
	case r, ok := <-c.replies:
		if !ok {
			c.tb.Fatal("the stream has ended")
		}
		return r
	case <-time.After(20 * time.Second):
		c.tb.Fatal("no response within 20 s")
	}
	return nil
}

// Quiet requests a name of a type that the server does not have, and fails unless the
// answer to that is the next response. It does nothing on a stream of one type.
func (c *plainConn) Quiet() {
	c.tb.Helper()
	const probe = "type.googleapis.com/probe"
	if c.typeURL != "" {
		return
	}
	name := fmt.Sprintf("probe-%d", len(c.probes))
	c.probes = append(c.probes, name)
	c.Send(probe, protocol.Request{Names: protocoltest.NameSet(c.probes...), Subscribe: protocoltest.NameSet(name), Nonce: c.nonce})
	r := c.Receive()
	if r.TypeURL != probe {
		c.tb.Fatalf("there is a response of %s that nothing asked for: %+v", r.TypeURL, r)
	}
	c.nonce = r.Nonce
}

func (c *plainConn) Close() { c.close() }

// plainWire sends requests and reads responses in one variant.
type plainWire interface {
	send(typeURL string, q protocol.Request, first bool) error
	receive() (*protocoltest.Reply, error)
}

func rejection(q protocol.Request) *statuspb.Status {
	if !q.Rejected {
		return nil
	}
	return &statuspb.Status{Code: int32(codes.InvalidArgument), Message: q.Message}
}

type plainWorld struct {
	grpc.BidiStreamingClient[discoveryv3.DiscoveryRequest, discoveryv3.DiscoveryResponse]
}

func (w plainWorld) send(typeURL string, q protocol.Request, first bool) error {
	m := &discoveryv3.DiscoveryRequest{
		TypeUrl: typeURL, ResourceNames: slices.Collect(q.Names.All()), VersionInfo: q.Version, ResponseNonce: q.Nonce, ErrorDetail: rejection(q),
	}
	if first {
		m.Node = node("10.0.0.1")
	}
	return w.Send(m)
}

func (w plainWorld) receive() (*protocoltest.Reply, error) {
	m, err := w.Recv()
	if err != nil {
		return nil, err
	}
	r := &protocoltest.Reply{TypeURL: m.GetTypeUrl(), Nonce: m.GetNonce(), Version: m.GetVersionInfo()}
	for _, body := range m.GetResources() {
		name, content, _ := protocoltest.Content(body.GetValue()) // empty if the resource is not of the suite
		r.Resources = append(r.Resources, protocoltest.Received{Name: name, Content: content})
	}
	return r, nil
}

type plainDelta struct {
	grpc.BidiStreamingClient[discoveryv3.DeltaDiscoveryRequest, discoveryv3.DeltaDiscoveryResponse]
}

func (w plainDelta) send(typeURL string, q protocol.Request, first bool) error {
	stated := map[string]string{}
	for _, has := range q.Initial {
		stated[has.Name] = has.Version
	}
	m := &discoveryv3.DeltaDiscoveryRequest{
		TypeUrl: typeURL, ResourceNamesSubscribe: slices.Collect(q.Subscribe.All()), ResourceNamesUnsubscribe: slices.Collect(q.Unsubscribe.All()),
		InitialResourceVersions: stated, ResponseNonce: q.Nonce, ErrorDetail: rejection(q),
	}
	if first {
		m.Node = node("10.0.0.1")
	}
	return w.Send(m)
}

func (w plainDelta) receive() (*protocoltest.Reply, error) {
	m, err := w.Recv()
	if err != nil {
		return nil, err
	}
	r := &protocoltest.Reply{
		TypeURL: m.GetTypeUrl(), Nonce: m.GetNonce(), Version: m.GetSystemVersionInfo(), Removed: m.GetRemovedResources(),
	}
	for _, x := range m.GetResources() {
		_, content, _ := protocoltest.Content(x.GetResource().GetValue())
		r.Resources = append(r.Resources, protocoltest.Received{Name: x.GetName(), Version: x.GetVersion(), Content: content})
	}
	return r, nil
}
