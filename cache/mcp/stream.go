package mcp

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"
)

const (
	// maxRequest is the default of Cache.maxRequest. Servers accept requests of 4 MiB by
	// default.
	maxRequest = 3 << 20
	// maxDetail bounds the text of a NACK.
	maxDetail = 1 << 10
	// rootNamespace is the namespace of the node. For istiod that makes the node a
	// control plane.
	rootNamespace = "istio-system"
)

var errNoDelta = errors.New("the peer has no delta")

// follow calls the peer and applies its responses until the stream ends. followed says
// whether the peer was followed; err says why the stream has ended.
func (c *Cache) follow(ctx context.Context) (followed bool, err error) {
	conn, err := c.dial()
	if err != nil {
		return false, err
	}
	defer conn.Close()
	if ctx, err = c.authorized(ctx); err != nil {
		return false, err
	}
	client := discoveryv3.NewAggregatedDiscoveryServiceClient(conn)
	if c.o.Variant == Delta || c.o.Variant == AnyVariant && c.versionsFit() {
		followed, err = c.followDelta(ctx, client)
		if !errors.Is(err, errNoDelta) || c.o.Variant == Delta {
			return followed, err
		}
	}
	return c.followWhole(ctx, client)
}

// versionsFit says whether the versions of the held resources fit into delta requests.
func (c *Cache) versionsFit() bool {
	for _, t := range c.types {
		if t.size() > c.maxRequest {
			return false
		}
	}
	return true
}

// dial returns a client that connects at the first call.
func (c *Cache) dial() (*grpc.ClientConn, error) {
	security := insecure.NewCredentials()
	if c.o.TLS != nil {
		config, err := c.o.TLS()
		if err != nil {
			return nil, fmt.Errorf("TLS: %w", err)
		}
		if config.MinVersion < tls.VersionTLS12 {
			config = config.Clone()
			config.MinVersion = tls.VersionTLS12
		}
		security = credentials.NewTLS(config)
	}
	return grpc.NewClient(c.o.Address,
		grpc.WithTransportCredentials(security),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(c.o.MaxMessage)),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 30 * time.Second, Timeout: 10 * time.Second}),
	)
}

// authorized adds the token to the calls of a context.
func (c *Cache) authorized(ctx context.Context) (context.Context, error) {
	if c.o.Token == nil {
		return ctx, nil
	}
	token, err := c.o.Token()
	if err != nil {
		return nil, fmt.Errorf("token: %w", err)
	}
	return metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token), nil
}

// node identifies this client to the peer. The metadata select the generator that sends
// objects.
func (c *Cache) node() *corev3.Node {
	text := structpb.NewStringValue
	return &corev3.Node{
		Id:            fmt.Sprintf("sidecar~127.0.0.1~%s.%s~%s.svc.cluster.local", c.o.NodeName, rootNamespace, rootNamespace),
		UserAgentName: "portolan",
		Metadata: &structpb.Struct{Fields: map[string]*structpb.Value{
			"GENERATOR": text("api"), "NAMESPACE": text(rootNamespace),
		}},
	}
}

// wire is one stream in one variant.
type wire interface {
	// request requests a kind for the first time.
	request(t *typeState, node *corev3.Node)
	// receive waits for a response. a.of is nil for a type that was not requested.
	receive() (a *answer, typeURL string, err error)
	// reply acknowledges the last received response, or refuses it with a reason.
	reply(refused *statuspb.Status)
}

func (c *Cache) decoder() *decoder {
	return &decoder{c.o.Domain, c.o.Now}
}

// converse requests all kinds and applies the responses until the stream ends. It
// applies the first responses together, once there is one for each kind.
func (c *Cache) converse(w wire, variant Variant) (followed bool, err error) {
	node := c.node()
	missing := map[*typeState]bool{}
	for _, kind := range c.kinds {
		t := c.types[kind.GroupVersionKind.String()]
		missing[t] = true
		w.request(t, node)
		node = nil // only the first request of a stream has it
	}
	var first []*answer
	for {
		a, typeURL, err := w.receive()
		if err != nil {
			return followed, err
		}
		w.reply(c.refusal(a, typeURL))
		switch {
		case a.of == nil:
		case followed:
			c.apply([]*answer{a})
		default:
			first = append(first, a)
			if delete(missing, a.of); len(missing) > 0 {
				c.setWaiting(unanswered(missing))
				continue
			}
			c.apply(first)
			c.setFollowed(variant)
			first, followed = nil, true
		}
	}
}

// unanswered names the kinds without a response.
func unanswered(missing map[*typeState]bool) error {
	var kinds []string
	for t := range missing {
		kinds = append(kinds, t.kind.Kind)
	}
	slices.Sort(kinds)
	return fmt.Errorf("the peer has not answered yet for %s", strings.Join(kinds, ", "))
}

// refusal returns why a response is refused, nil if it is not.
func (c *Cache) refusal(a *answer, typeURL string) *statuspb.Status {
	text := ""
	if a.of == nil {
		text = fmt.Sprintf("the type %q was not requested", typeURL)
	} else if bad := a.undecodable(); len(bad) > 0 {
		text = fmt.Sprintf("%d resources cannot be decoded, the first of which is %q: %s", len(bad), bad[0].name, bad[0].fault)
	}
	if text == "" {
		return nil
	}
	c.mu.Lock()
	c.refused++
	c.mu.Unlock()
	c.o.Log.Warn("an answer of a source of configuration was refused", "peer", c.o.Address, "type", typeURL, "reason", text)
	return &statuspb.Status{Code: int32(codes.InvalidArgument), Message: strings.ToValidUTF8(text[:min(len(text), maxDetail)], "")}
}

func endReason(err error) error {
	if errors.Is(err, io.EOF) {
		return errors.New("the peer has closed the stream")
	}
	if s, ok := status.FromError(err); ok {
		return fmt.Errorf("%s: %s", s.Code(), s.Message())
	}
	return err
}
