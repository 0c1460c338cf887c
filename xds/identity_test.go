package xds_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/portolan-mesh/portolan/discovery/identity"
	"github.com/portolan-mesh/portolan/xds"
	"github.com/portolan-mesh/portolan/xds/admission"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/generate/catalogue"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

var shopWeb = identity.Identity{TrustDomain: "cluster.local", Namespace: "shop", ServiceAccount: "web"}

// proving makes the server take all clients as having proved an identity.
func proving(who identity.Identity, until time.Time) func(*xds.Options) {
	return func(o *xds.Options) {
		o.Peer = func(context.Context) (admission.Peer, error) { return admission.Peer{Identity: who, Until: until}, nil }
	}
}

// TestIdentitiesOutrankNodes: a proxy whose node contradicts its identity is refused, with
// a message for its operator. The refusal is remembered until the proxy is served.
func TestIdentitiesOutrankNodes(t *testing.T) {
	t.Parallel()
	foreign := shopWeb
	foreign.TrustDomain = "other.example"
	saying := func(key, value string) *corev3.Node {
		n := xdstest.NewNode("sidecar", "10.0.0.1", "web", "shop", nil)
		n.Metadata.Fields[key] = structpb.NewStringValue(value)
		return n
	}
	peer := saying("GENERATOR", "api")
	peer.Metadata.Fields["NAMESPACE"] = structpb.NewStringValue("bank")
	for what, c := range map[string]struct {
		who       identity.Identity
		node      *corev3.Node
		mayExport func(context.Context, identity.Identity) error
		refused   string // part of why
	}{
		"itself":                           {who: shopWeb, node: saying("SERVICE_ACCOUNT", "web")},
		"one that names no account":        {who: shopWeb, node: xdstest.NewNode("sidecar", "10.0.0.1", "web", "shop", nil)},
		"another account":                  {who: shopWeb, node: saying("SERVICE_ACCOUNT", "db"), refused: `start with the account "web"`},
		"another namespace":                {who: shopWeb, node: xdstest.NewNode("sidecar", "10.0.0.1", "web", "bank", nil), refused: `start with the namespace "shop"`},
		"a namespace with tricks":          {who: shopWeb, node: xdstest.NewNode("sidecar", "10.0.0.1", "web", "shop/../bank", nil), refused: `start with the namespace "shop"`},
		"a namespace that begins alike":    {who: shopWeb, node: xdstest.NewNode("sidecar", "10.0.0.1", "web", "shop\x00", nil), refused: `start with the namespace "shop"`},
		"a gateway of another namespace":   {who: shopWeb, node: xdstest.NewNode("router", "10.0.0.1", "edge", "bank", nil), refused: `start with the namespace "shop"`},
		"another trust domain":             {who: foreign, node: xdstest.NewNode("sidecar", "10.0.0.1", "web", "shop", nil), refused: `trust domain "other.example"`},
		"a control plane without rights":   {who: shopWeb, node: peer, refused: "may not read the objects of the mesh"},
		"a control plane that is not let":  {who: shopWeb, node: peer, mayExport: func(context.Context, identity.Identity) error { return errors.New("no") }, refused: "may not read the objects of the mesh (GENERATOR: api): no"},
		"a control plane that has a right": {who: shopWeb, node: peer, mayExport: func(context.Context, identity.Identity) error { return nil }},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			variants(t, func(t *testing.T, v protocol.Variant) {
				s := xdstest.NewServer(t, catalogue.Types(), proving(c.who, time.Time{}), func(o *xds.Options) { o.MayExport = c.mayExport })
				client := xdstest.Dial(t, s.Address, xdstest.ClientOptions{Node: c.node, Variant: v})
				client.Subscribe(xdstest.ClusterType)
				if c.refused == "" {
					client.AwaitAnswer(xdstest.ClusterType, 0)
					if all := s.XDS.Gate.Refusals(); len(all) > 0 {
						t.Errorf("it is said to have been refused: %v", all)
					}
					return
				}
				err := client.AwaitEnd()
				if status.Code(err) != codes.PermissionDenied || !strings.Contains(status.Convert(err).Message(), c.refused) {
					t.Errorf("the stream ended with %v", err)
				}
				all := s.XDS.Gate.Refusals()
				if len(all) != 1 || all[0].Times != 1 || all[0].Reason != status.Convert(err).Message() || all[0].Identity != c.who.String() || !strings.HasPrefix(all[0].Address, "127.0.0.1:") {
					t.Errorf("remembered are %+v", all)
				}
			})
		})
	}
}

// TestARightThatEnds: a control plane that loses the right to read the objects of the mesh
// gets no later change.
func TestARightThatEnds(t *testing.T) {
	t.Parallel()
	variants(t, func(t *testing.T, v protocol.Variant) {
		var ended atomic.Bool
		s := xdstest.NewServer(t, catalogue.Types(), proving(shopWeb, time.Time{}), func(o *xds.Options) {
			o.MayExport = func(context.Context, identity.Identity) error {
				if ended.Load() {
					return errors.New("no more")
				}
				return nil
			}
		})
		node := xdstest.NewNode("sidecar", "10.0.0.1", "web", "shop", nil)
		node.Metadata.Fields["GENERATOR"] = structpb.NewStringValue("api")
		client := xdstest.Dial(t, s.Address, xdstest.ClientOptions{Node: node, Variant: v})
		const entries = "networking.istio.io/v1/ServiceEntry"
		client.Subscribe(entries)
		client.AwaitAnswer(entries, 0)
		ended.Store(true)
		s.Apply(service("reviews", 9080, "10.1.0.1"))
		if err := client.AwaitEnd(); status.Code(err) != codes.PermissionDenied || !strings.Contains(status.Convert(err).Message(), "no more") {
			t.Errorf("the stream ended with %v", err)
		}
		if n := len(client.Answers(entries)); n != 1 {
			t.Errorf("%d answers", n)
		}
	})
}

// TestRefusalsAreBounded, and those of a proxy that is served afterwards are forgotten.
func TestRefusalsAreBounded(t *testing.T) {
	t.Parallel()
	s := xdstest.NewServer(t, catalogue.Types(), proving(shopWeb, time.Time{}))
	refused := func(name, namespace string) {
		c := xdstest.Dial(t, s.Address, xdstest.ClientOptions{Node: xdstest.NewNode("sidecar", "10.0.0.1", name, namespace, nil), Variant: protocol.Delta})
		defer c.Close()
		c.Subscribe(xdstest.ClusterType)
		_ = c.AwaitEnd()
	}
	for i := range 110 {
		refused(fmt.Sprint("proxy-", i), "bank")
	}
	refused("proxy-109", "bank")
	all := s.XDS.Gate.Refusals()
	if len(all) != 100 || all[0].Times != 2 || !strings.Contains(all[0].Node, "proxy-109") {
		t.Errorf("%d are remembered, the first %+v", len(all), all[0])
	}
	refused(strings.Repeat("x", 100_000), "bank")
	if got := s.XDS.Gate.Refusals()[0]; len(got.Node) > 1000 || len(got.Reason) > 10_000 {
		t.Errorf("of a long node %d and %d bytes are kept", len(got.Node), len(got.Reason))
	}
}

// TestProofsEnd: the server ends the stream and the connection when the proof of the client
// ends. A client whose proof has already ended gets no stream.
func TestProofsEnd(t *testing.T) {
	t.Parallel()
	for what, until := range map[string]time.Duration{"later": 300 * time.Millisecond, "before": -time.Second} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			var hungUp atomic.Int64
			s := xdstest.NewServer(t, catalogue.Types(), proving(shopWeb, time.Now().Add(until)), func(o *xds.Options) {
				o.HangUp = func(net.Addr) { hungUp.Add(1) }
			})
			c := xdstest.Dial(t, s.Address, xdstest.ClientOptions{Node: node("10.0.0.1"), Variant: protocol.Delta})
			c.Subscribe(xdstest.ClusterType)
			if err := c.AwaitEnd(); status.Code(err) != codes.Unauthenticated {
				t.Errorf("the stream ended with %v", err)
			}
			xdstest.Eventually(t, "the connection is closed", func() bool { return hungUp.Load() == 1 })
		})
	}
}

// TestStreamsOfAnIdentity: the streams of one identity are bounded, and other identities
// may still open streams.
func TestStreamsOfAnIdentity(t *testing.T) {
	t.Parallel()
	const most = 3
	var another atomic.Bool
	s := xdstest.NewServer(t, catalogue.Types(), func(o *xds.Options) {
		o.MaxIdentityStreams = most
		o.Peer = func(context.Context) (admission.Peer, error) {
			who := shopWeb
			if another.Load() {
				who.ServiceAccount = "db"
			}
			return admission.Peer{Identity: who}, nil
		}
	})
	open := func() *xdstest.Client {
		c := xdstest.Dial(t, s.Address, xdstest.ClientOptions{Node: node("10.0.0.1"), Variant: protocol.Delta})
		c.Subscribe(xdstest.ClusterType)
		return c
	}
	var clients []*xdstest.Client
	for range most {
		c := open()
		c.AwaitAnswer(xdstest.ClusterType, 0)
		clients = append(clients, c)
	}
	if err := open().AwaitEnd(); status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "--max-streams-per-identity") {
		t.Errorf("one more ends with %v", err)
	}
	another.Store(true)
	open().AwaitAnswer(xdstest.ClusterType, 0)
	another.Store(false)
	clients[0].Close()
	xdstest.Eventually(t, "the place is free again", func() bool { return s.XDS.Connections() == most })
	open().AwaitAnswer(xdstest.ClusterType, 0)
}

// TestNamesOfAnIdentity: the memory for all subscriptions of one identity is bounded.
func TestNamesOfAnIdentity(t *testing.T) {
	t.Parallel()
	s := xdstest.NewServer(t, catalogue.Types(), proving(shopWeb, time.Time{}), func(o *xds.Options) { o.StreamsMemory = 4 << 20 })
	subscribe := func(prefix string) *xdstest.Client {
		c := xdstest.Dial(t, s.Address, xdstest.ClientOptions{Node: node("10.0.0.1"), Variant: protocol.Delta})
		names := make([]string, 1000)
		for i := range names {
			names[i] = fmt.Sprint("outbound|80||", prefix, i, ".shop.example")
		}
		c.Subscribe(xdstest.EndpointType, names...)
		return c
	}
	subscribe("same-").AwaitAnswer(xdstest.EndpointType, 0)
	var refused error
	for i := 0; i < 20 && refused == nil; i++ {
		c := subscribe(fmt.Sprint("other-", i, "-"))
		ended := func() bool {
			select {
			case <-c.Done():
				return true
			default:
				return false
			}
		}
		xdstest.Eventually(t, "the stream is answered or ended", func() bool { return ended() || len(c.Answers(xdstest.EndpointType)) > 0 })
		if ended() {
			refused = c.AwaitEnd()
		}
	}
	if status.Code(refused) != codes.ResourceExhausted || !strings.Contains(refused.Error(), shopWeb.String()) {
		t.Errorf("it ended with %v", refused)
	}
}

// TestProofsThatAreTakenBack: a proof that is taken back ends the streams of its clients,
// with the reason, and no others. While it is unknown whether a proof holds, its streams go
// on.
func TestProofsThatAreTakenBack(t *testing.T) {
	t.Parallel()
	variants(t, func(t *testing.T, v protocol.Variant) {
		var fault atomic.Pointer[error]
		var web atomic.Bool
		var refusals atomic.Int64
		web.Store(true)
		s := xdstest.NewServer(t, catalogue.Types(), func(o *xds.Options) {
			o.OnRefusal = func(r admission.Refusal) {
				if r.Identity == shopWeb.String() {
					refusals.Add(1)
				}
			}
			o.Peer = func(context.Context) (admission.Peer, error) {
				if !web.Load() {
					return admission.Peer{Identity: identity.Identity{TrustDomain: "cluster.local", Namespace: "shop", ServiceAccount: "db"}}, nil
				}
				return admission.Peer{Identity: shopWeb, Still: func(context.Context) error {
					if err := fault.Load(); err != nil {
						return *err
					}
					return nil
				}}, nil
			}
		})
		open := func() *xdstest.Client {
			c := xdstest.Dial(t, s.Address, xdstest.ClientOptions{Node: node("10.0.0.1"), Variant: v})
			c.Subscribe(xdstest.ClusterType)
			c.AwaitAnswer(xdstest.ClusterType, 0)
			return c
		}
		revoked := open()
		web.Store(false)
		other := open()
		for _, err := range []error{nil, status.Error(codes.Unavailable, "not read"), status.Error(codes.PermissionDenied, "it is revoked")} {
			if err != nil {
				fault.Store(&err)
			}
			s.XDS.Gate.CheckPeers(t.Context())
			if status.Code(err) != codes.PermissionDenied && s.XDS.Connections() != 2 {
				t.Errorf("%v has ended streams", err)
			}
		}
		if err := revoked.AwaitEnd(); status.Code(err) != codes.PermissionDenied || !strings.Contains(err.Error(), "it is revoked") {
			t.Errorf("it ended with %v", err)
		}
		xdstest.Eventually(t, "the other goes on alone", func() bool { return s.XDS.Connections() == 1 })
		select {
		case <-other.Done():
			t.Error("another stream has ended")
		default:
		}
		if refusals.Load() != 1 {
			t.Errorf("told of %d refusals", refusals.Load())
		}
	})
}
