package protocoltest

import (
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/proto"

	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// The types of the suite, in the order of sending. Each has the URL of a type of the API
// and behaves like that type.
const (
	// Clusters may all be requested by naming none. A response in state of the world then
	// carries the whole state. Each cluster has the endpoints of its name as a child.
	Clusters = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
	// Endpoints are requested by name, and a client waits for each.
	Endpoints = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
	// Hosts may all be requested by naming none, in delta only.
	Hosts = "type.googleapis.com/envoy.config.route.v3.VirtualHost"
	// Secrets are requested by name.
	Secrets = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret"
)

// Names returns the names of resources that a server may have.
func Names() []string { return []string{"a", "b", "c", "d", "x"} }

// Types returns the types of the suite, as package protocol needs them.
func Types() []protocol.Type {
	return []protocol.Type{
		{URL: Clusters, Full: true},
		{URL: Endpoints, Empty: func(name string) (*resource.Resource, error) { return Resource(Endpoints, name, "") }},
		{URL: Hosts, Full: true},
		{URL: Secrets},
	}
}

// Resource makes a resource of a type with some content.
func Resource(typeURL, name, content string) (*resource.Resource, error) {
	message, needs := Message(typeURL, name, content)
	r, err := resource.New(name, message, needs...)
	if err == nil {
		r.Body.TypeUrl = typeURL
	}
	return r, err
}

// Message returns the message and the needs that Resource makes a resource of.
func Message(typeURL, name, content string) (proto.Message, []resource.Need) {
	var needs []resource.Need
	if typeURL == Clusters {
		needs = []resource.Need{{TypeURL: Endpoints, Name: name, Kind: resource.Warm}}
	}
	return &corev3.Locality{Region: name, Zone: content}, needs
}

// Content reads the body of a Resource.
func Content(body []byte) (name, content string, err error) {
	l := &corev3.Locality{}
	err = proto.Unmarshal(body, l)
	return l.GetRegion(), l.GetZone(), err
}

// Server is what the suite tests.
type Server interface {
	// Offer sets the resources that clients should have of a type from now on, as content
	// by name. A stream that is opened later must not get older ones.
	Offer(typeURL string, content map[string]string)
	// Connect opens a stream of a type, or of all types if the URL is empty.
	Connect(variant protocol.Variant, typeURL string) Conn
}

// Conn is a stream of a client. Its methods fail the test if they cannot do what they
// should.
type Conn interface {
	// Send sends a request for a type. It adds the node to the first request.
	Send(typeURL string, q protocol.Request)
	// Receive waits for the next response.
	Receive() *Reply
	// Quiet fails the test if a response has come, or, as far as can be known, is about
	// to.
	Quiet()
	// Close ends the stream.
	Close()
}

// Reply is a response as a client reads it.
type Reply struct {
	TypeURL, Nonce, Version string
	Resources               []Received
	Removed                 []string
}

// Received is a resource in a Reply. In state of the world it has no version.
type Received struct{ Name, Version, Content string }

// Mode says which streams a server has.
type Mode int

// The modes.
const (
	Aggregated Mode = iota
	PerType
)

// Run checks a server against each rule, in both variants.
func Run(t *testing.T, mode Mode, server func(testing.TB) Server) {
	t.Helper()
	for _, variant := range []protocol.Variant{protocol.StateOfTheWorld, protocol.Delta} {
		for _, r := range rules() {
			if r.only != nil && *r.only != variant || r.several && mode == PerType {
				continue
			}
			t.Run(variant.String()+"/"+r.name, func(t *testing.T) {
				t.Parallel()
				r.check(&bench{t: t, mode: mode, variant: variant, server: server(t)})
			})
		}
	}
}

type rule struct {
	name    string
	only    *protocol.Variant // nil for both
	several bool              // it needs several types on one stream
	check   func(*bench)
}

// bench is what the check of a rule works with.
type bench struct {
	t       *testing.T
	mode    Mode
	variant protocol.Variant
	server  Server
}

func (b *bench) delta() bool { return b.variant == protocol.Delta }

// offer offers content in the notation of the rules: "a=1" for each resource.
func (b *bench) offer(typeURL string, content ...string) {
	b.t.Helper()
	b.server.Offer(typeURL, parse(content))
}

// served returns the types that the variant has.
func (b *bench) served() []string {
	if b.delta() {
		return []string{Clusters, Endpoints, Hosts, Secrets}
	}
	return []string{Clusters, Endpoints, Secrets}
}
