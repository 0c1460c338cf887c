package xds

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"sync/atomic"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/xds/generate"
	"github.com/portolan-mesh/portolan/xds/order"
	"github.com/portolan-mesh/portolan/xds/stream"
)

var (
	errShutdown = status.Error(codes.Unavailable, "the control plane is stopping")
	errStalled  = status.Error(codes.Unavailable, "the client took nothing for too long")
	errMoved    = status.Error(codes.Unavailable, "another replica has fewer proxies: connect anew")
	errSilent   = status.Error(codes.Unavailable, "the client answered nothing for too long")
)

// Connection is one stream of one proxy. Its fields are used by the goroutine
// that runs it, those apart which say otherwise.
type Connection struct {
	server  *DiscoveryServer
	variant stream.Variant
	wire    wire
	logger  *slog.Logger
	cancel  context.CancelCauseFunc // any goroutine
	since   time.Time
	remote  net.Addr // nil where it is not known
	leave   func()   // ends the turn of the first sync; nil when it is over

	requests chan *message
	turn     chan struct{}               // closed when its turn of the first sync begins
	dirty    chan struct{}               // holds a token where there is something to push; see mark
	status   atomic.Pointer[ProxyStatus] // read by any goroutine
	away     atomic.Bool                 // it has no proxy yet, or waits for its client to take a response; any goroutine
	at       uint64                      // the number of the push that it has
	last     map[string]*timing          // by type URL

	// Nil before the first request.
	proxy *discovery.Proxy
	world *place
	flow  *order.Flow
}

// timing is when a type was last sent to and last answered, and how well the
// proxy is in step.
type timing struct {
	sent, answered time.Time
	late           int // changes that went before what they lead to
	progress
}

// message is a request of either variant.
type message struct {
	node    *corev3.Node
	typeURL string
	request stream.Request
}

// serve runs a stream until the client ends it, the server stops, or the client
// takes nothing. Receiving and sending block in goroutines of their own, which
// end when serve has returned and gRPC has ended the stream; Run waits for them.
func (s *DiscoveryServer) serve(parent context.Context, variant stream.Variant, w wire) error {
	if err := s.Ready(); err != nil {
		return status.Error(codes.Unavailable, "the control plane is not ready: "+err.Error())
	}
	ctx, cancel := context.WithCancelCause(parent)
	defer cancel(nil)
	c := s.newConnection(variant, w, cancel)
	if p, ok := peer.FromContext(parent); ok {
		c.remote = p.Addr
	}
	ended := make(chan error, 1)
	if !s.add(c, func() { c.receive(ctx) }, func() { ended <- c.run(ctx) }) {
		return errShutdown
	}
	defer s.remove(c)
	var err error
	select {
	case err = <-ended:
	case <-ctx.Done():
	}
	for _, why := range []error{errShutdown, errStalled, errMoved} {
		if errors.Is(context.Cause(ctx), why) {
			return why
		}
	}
	if cause := context.Cause(ctx); status.Code(cause) == codes.InvalidArgument {
		return cause // the client is told what it said wrong
	}
	return err
}

func (s *DiscoveryServer) newConnection(variant stream.Variant, w wire, cancel context.CancelCauseFunc) *Connection {
	c := &Connection{
		server: s, variant: variant, wire: w, cancel: cancel, logger: s.logger, since: time.Now(),
		requests: make(chan *message), turn: make(chan struct{}), dirty: make(chan struct{}, 1), last: map[string]*timing{},
		at: s.rounds.number.Load(),
	}
	c.away.Store(true)
	return c
}

// receive passes on what the client says until the stream ends. Before its turn
// nothing is read: thousands of clients who come back at one time, each with the
// versions of all that it has, wait at their own cost.
func (c *Connection) receive(ctx context.Context) {
	select {
	case <-c.turn:
	case <-ctx.Done():
		return
	}
	for {
		m, err := c.wire.receive()
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			c.cancel(err)
			return
		}
		select {
		case c.requests <- m:
		case <-ctx.Done():
			return
		}
	}
}

// mark makes the connection dirty: what it serves is no longer the newest. It
// never blocks, and may be called by any goroutine.
func (c *Connection) mark() {
	select {
	case c.dirty <- struct{}{}:
	default:
	}
}

// run takes requests and pushes, one at a time, until ctx ends.
func (c *Connection) run(ctx context.Context) error {
	defer c.end()
	var err error
	if c.leave, err = c.server.admission.enter(ctx); err != nil {
		return err
	}
	close(c.turn)
	timer := time.NewTimer(time.Hour) // armed where something waits
	defer timer.Stop()
	for {
		err = nil
		select {
		case <-ctx.Done():
		case m := <-c.requests:
			err = c.handle(ctx, m)
		case <-c.dirty:
			err = c.push(ctx)
			c.server.rounds.done(c)
		case <-timer.C:
			if at := c.stallsAt(); !at.IsZero() && !time.Now().Before(at) {
				c.logger.Warn("closing a stream whose client answers nothing", "proxy", c.name())
				err = errSilent
			} else {
				err = c.flush()
			}
		}
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		}
		if at := c.wakesAt(); !at.IsZero() {
			timer.Reset(time.Until(at))
		}
		c.admitted()
		c.report()
		c.server.moves.Add(1)
	}
}

// end gives up what the connection holds.
func (c *Connection) end() {
	c.server.rounds.done(c)
	if c.leave != nil {
		c.leave()
	}
	if c.world != nil {
		c.world.close()
		c.logger.Info("proxy disconnected", "proxy", c.name())
	}
}

func (c *Connection) name() string {
	if c.proxy == nil {
		return "unknown"
	}
	return c.proxy.ID
}

// handle takes one request.
func (c *Connection) handle(ctx context.Context, m *message) error {
	if c.proxy == nil {
		if err := c.identify(ctx, m.node); err != nil {
			return err
		}
	}
	session, err := c.session(m.typeURL)
	if err != nil {
		return err
	}
	if !session.Started() && c.holdsWhole(m) {
		if err := c.keepWhole(ctx); err != nil {
			return err
		}
	}
	before := session.Status().Acked.Revision
	answer := c.flow.Request(m.typeURL, m.request, time.Now())
	switch {
	case answer.Acked != nil:
		c.last[m.typeURL].answered = time.Now()
		if answer.Acked.Revision > before {
			c.server.metrics.acked(answer.Acked.Revision, c.since)
		}
	case answer.Rejected != nil:
		c.last[m.typeURL].answered = time.Now()
		c.server.metrics.rejected(c.server.typeName(m.typeURL))
		c.logger.Warn("proxy rejected a response", "proxy", c.name(), "type", m.typeURL,
			"version", answer.Rejected.Version, "err", answer.Rejected.Message)
	}
	return c.flush()
}

// maxTypes bounds the types of a stream, which a client may make up.
const maxTypes = 64

// session finds that of a type. Of one that is not served every name is unknown.
func (c *Connection) session(typeURL string) (*stream.Session, error) {
	switch session := c.flow.Session(typeURL); {
	case session != nil:
		return session, nil
	case typeURL == "":
		return nil, status.Error(codes.InvalidArgument, "a request on an aggregated stream has no type_url")
	case c.flow.Len() >= maxTypes:
		return nil, status.Errorf(codes.InvalidArgument, "type %s: the stream asks for more than %d types", typeURL, maxTypes)
	}
	c.last[typeURL] = &timing{}
	return c.flow.Add(stream.Type{URL: typeURL, Names: c.server.names}), nil
}

// identify takes the node of the first request and builds the proxy's world.
func (c *Connection) identify(ctx context.Context, node *corev3.Node) error {
	proxy, err := discovery.ParseProxy(node)
	if err != nil {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	proxy.RouteDelta = c.takesRouteDelta(node)
	c.proxy = proxy
	c.flow = c.newFlow()
	c.world = c.server.worlds.join(proxy)
	c.logger.Info("proxy connected", "proxy", proxy.ID, "variant", c.variant.String(), "envoy", proxy.EnvoyVersion)
	c.away.Store(false)
	return c.advance(ctx)
}

// newFlow makes the flow of the types that are served to the proxy.
func (c *Connection) newFlow() *order.Flow {
	o := c.server.options
	types := make([]order.Type, len(o.Types))
	for i, t := range o.Types {
		types[i] = order.Type{Type: t.streamType(c.proxy.Type), Parent: t.Parent, CoverParent: t.CoverParent, Target: t.Target}
		types[i].Names = c.server.names
		if a, ok := t.For(c.proxy.Type).(generate.Announcer); ok && c.wire.one() == "" {
			types[i].Announce = a.Announce
		}
		types[i].Optional = t.Scoped && !c.proxy.RouteDelta
		if w, delta := c.wire.(deltaWire); delta && w.only != "" {
			types[i].Scoped = false // what the resources live in is of another stream
		}
		c.last[types[i].URL] = &timing{}
	}
	return order.New(types, c.variant, order.Limits{Ready: o.ReadyLimit, Resolve: o.ResolveGrace, Withdraw: o.WithdrawLimit})
}

// typ finds a served type by its URL.
func (s *DiscoveryServer) typ(typeURL string) (ResourceType, bool) {
	for _, t := range s.options.Types {
		if t.Generator.TypeURL() == typeURL {
			return t, true
		}
	}
	return ResourceType{}, false
}

// typeName is the short name of a type, "other" of one that is not served.
func (s *DiscoveryServer) typeName(typeURL string) string {
	if t, served := s.typ(typeURL); served {
		return t.Name
	}
	return "other"
}
