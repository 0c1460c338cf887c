package mcp_test

import (
	"crypto/tls"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/timestamppb"
	mcpv1 "istio.io/api/mcp/v1alpha1"

	"github.com/portolan-mesh/portolan/cache/cachetest"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// resource is the resource that a peer sends for an object.
type resource struct {
	version string
	any     *anypb.Any
}

// resourceOf makes the resource of an object, as istiod does.
func resourceOf(t testing.TB, object *config.Config) resource {
	t.Helper()
	spec, err := config.MarshalSpec(object.Spec, nil)
	if err != nil {
		t.Fatal(err)
	}
	m := &mcpv1.Resource{
		Metadata: &mcpv1.Metadata{
			Name: object.Namespace + "/" + object.Name, Version: object.ResourceVersion, Labels: object.Labels, Annotations: object.Annotations,
		},
		Body: &anypb.Any{TypeUrl: config.SpecType(object.Spec), Value: spec},
	}
	if !object.CreationTimestamp.IsZero() {
		m.Metadata.CreateTime = timestamppb.New(object.CreationTimestamp)
	}
	return resource{object.ResourceVersion, pack(t, m)}
}

func pack(t testing.TB, m proto.Message) *anypb.Any {
	t.Helper()
	any, err := anypb.New(m)
	if err != nil {
		t.Fatal(err)
	}
	return any
}

// entry returns the resource of a service entry, with a version that follows from the
// round.
func entry(t testing.TB, namespace, name string, round int) resource {
	t.Helper()
	object := cachetest.ServiceEntry(namespace, name, round)
	object.ResourceVersion = fmt.Sprint(1000 + round)
	return resourceOf(t, object)
}

var entries = schema.ServiceEntry.String()

type request struct {
	typeURL, nonce string
	node           *corev3.Node
	initial        map[string]string // in delta; nil in the state of the world
	delta          bool
	refused        *statuspb.Status
}

// peer is an ADS server whose content and behaviour a test sets.
type peer struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
	t        testing.TB
	address  string
	listener *cutter

	mu       sync.Mutex // guards the fields below
	content  map[string]map[string]resource
	changed  chan struct{}   // closed at the next change
	silent   map[string]bool // types without a response
	requests []request       // of all streams
	headers  []metadata.MD   // of all streams
	noDelta  bool            // delta is not implemented
	denies   error           // the error with which streams end
	unasked  string          // a type for which a response is sent without a request
}

func newPeer(t testing.TB, secure *tls.Config) *peer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &peer{
		t: t, address: l.Addr().String(), listener: &cutter{Listener: l, conns: map[net.Conn]bool{}}, content: map[string]map[string]resource{},
		changed: make(chan struct{}), silent: map[string]bool{},
	}
	var options []grpc.ServerOption
	if secure != nil {
		options = append(options, grpc.Creds(credentials.NewTLS(secure)))
	}
	server := grpc.NewServer(options...)
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(server, p)
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(p.listener) })
	t.Cleanup(func() { server.Stop(); serving.Wait() })
	return p
}

// cutter cuts the connections of a listener.
type cutter struct {
	net.Listener
	mu    sync.Mutex // guards the fields below
	conns map[net.Conn]bool
	away  bool
}

// Accept implements net.Listener.
func (c *cutter) Accept() (net.Conn, error) {
	for {
		conn, err := c.Listener.Accept()
		if err != nil {
			return nil, err
		}
		c.mu.Lock()
		if c.away {
			_ = conn.Close()
		} else {
			c.conns[conn] = true
		}
		away := c.away
		c.mu.Unlock()
		if !away {
			return conn, nil
		}
	}
}

// cut cuts all connections; with away it refuses new ones until the next cut.
func (c *cutter) cut(away bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.away = away
	for conn := range c.conns {
		_ = conn.Close()
		delete(c.conns, conn)
	}
}

// set changes resources of a type, in one response; those without content are removed.
func (p *peer) set(typeURL string, resources map[string]resource) {
	p.change(func() {
		content := maps.Clone(p.content[typeURL])
		if content == nil {
			content = map[string]resource{}
		}
		for name, r := range resources {
			if r.any == nil {
				delete(content, name)
			} else {
				content[name] = r
			}
		}
		p.content[typeURL] = content
	})
}

func (p *peer) change(how func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	how()
	close(p.changed)
	p.changed = make(chan struct{})
}

func (p *peer) receivedRequests() []request {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.requests)
}

// refusals returns the reasons of the NACKs.
func (p *peer) refusals() (out []string) {
	for _, r := range p.receivedRequests() {
		if r.refused != nil {
			out = append(out, r.refused.GetMessage())
		}
	}
	return out
}

func (p *peer) note(r request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.requests = append(p.requests, r)
}

func (p *peer) admit(stream grpc.ServerStream, delta bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	md, _ := metadata.FromIncomingContext(stream.Context())
	p.headers = append(p.headers, md)
	if delta && p.noDelta {
		return status.Error(codes.Unimplemented, "no delta here")
	}
	return p.denies
}

// known is the state of a type on one stream.
type known struct {
	versions map[string]string
	sent     map[string]resource // the content that was last sent
	begun    bool
}

// serve answers the requests of a stream, and sends changes.
func serve(p *peer, stream grpc.ServerStream, receive func() (*request, error), send func(typeURL string, content map[string]resource, k *known) error) error {
	incoming := make(chan *request)
	go func() {
		defer close(incoming)
		for {
			r, err := receive()
			if err != nil {
				return
			}
			p.note(*r)
			select {
			case incoming <- r:
			case <-stream.Context().Done():
				return
			}
		}
	}()
	types := map[string]*known{}
	var order []string
	if p.unasked != "" {
		types[p.unasked], order = &known{versions: map[string]string{}}, []string{p.unasked}
	}
	for {
		p.mu.Lock()
		changed := p.changed
		p.mu.Unlock()
		for _, typeURL := range order {
			p.mu.Lock()
			content, silent := p.content[typeURL], p.silent[typeURL]
			p.mu.Unlock()
			if silent {
				continue
			}
			if err := send(typeURL, content, types[typeURL]); err != nil {
				return err
			}
		}
		select {
		case <-stream.Context().Done():
			return nil
		case <-changed:
		case r, ok := <-incoming:
			if !ok {
				return nil
			}
			if types[r.typeURL] == nil {
				types[r.typeURL] = &known{versions: maps.Clone(r.initial)}
				if types[r.typeURL].versions == nil {
					types[r.typeURL].versions = map[string]string{}
				}
				order = append(order, r.typeURL)
			}
		}
	}
}

// DeltaAggregatedResources implements the service.
func (p *peer) DeltaAggregatedResources(stream discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	if err := p.admit(stream, true); err != nil {
		return err
	}
	nonce := 0
	return serve(p, stream, func() (*request, error) {
		r, err := stream.Recv()
		if err != nil {
			return nil, err
		}
		return &request{r.GetTypeUrl(), r.GetResponseNonce(), r.GetNode(), r.GetInitialResourceVersions(), true, r.GetErrorDetail()}, nil
	}, func(typeURL string, content map[string]resource, k *known) error {
		nonce++
		m := &discoveryv3.DeltaDiscoveryResponse{TypeUrl: typeURL, Nonce: fmt.Sprint(nonce)}
		for _, name := range slices.Sorted(maps.Keys(content)) {
			if r := content[name]; k.versions[name] != r.version {
				m.Resources = append(m.Resources, &discoveryv3.Resource{Name: name, Version: r.version, Resource: r.any})
				k.versions[name] = r.version
			}
		}
		for _, name := range slices.Sorted(maps.Keys(k.versions)) {
			if _, there := content[name]; !there {
				m.RemovedResources = append(m.RemovedResources, name)
				delete(k.versions, name)
			}
		}
		if k.begun && len(m.Resources)+len(m.RemovedResources) == 0 {
			return nil
		}
		k.begun = true
		return stream.Send(m)
	})
}

// StreamAggregatedResources implements the service. Each response is the whole content.
func (p *peer) StreamAggregatedResources(stream discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error {
	if err := p.admit(stream, false); err != nil {
		return err
	}
	nonce := 0
	return serve(p, stream, func() (*request, error) {
		r, err := stream.Recv()
		if err != nil {
			return nil, err
		}
		return &request{r.GetTypeUrl(), r.GetResponseNonce(), r.GetNode(), nil, false, r.GetErrorDetail()}, nil
	}, func(typeURL string, content map[string]resource, k *known) error {
		if k.begun && maps.EqualFunc(content, k.sent, func(a, b resource) bool { return a.version == b.version && a.any == b.any }) {
			return nil
		}
		nonce++
		m := &discoveryv3.DiscoveryResponse{TypeUrl: typeURL, VersionInfo: fmt.Sprint("v", nonce), Nonce: fmt.Sprint(nonce)}
		for _, name := range slices.Sorted(maps.Keys(content)) {
			m.Resources = append(m.Resources, content[name].any)
		}
		k.begun, k.sent = true, content
		return stream.Send(m)
	})
}
