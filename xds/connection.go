package xds

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"sync"
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

// Connection is one stream of one proxy. Two goroutines work for it: one takes
// what the client says, run all else that is to be done, each at its turn.
type Connection struct {
	server  *DiscoveryServer
	variant stream.Variant
	wire    wire
	logger  *slog.Logger
	cancel  context.CancelCauseFunc
	since   time.Time
	remote  net.Addr // nil where it is not known

	wakes   chan struct{}         // holds a token where there is something to look at; see wake
	dirty   atomic.Bool           // there is something to push; see mark
	away    atomic.Bool           // it has no proxy yet, or waits for its client to take a response
	sending *watchdog             // of a response that is being written
	alarm   *alarm                // looks at it though nothing happens
	report  report                // what others may know of it
	class   atomic.Pointer[world] // that of its proxy, when it was last brought up to date; nil before

	mu    sync.Mutex // the turn: guards the fields below, and is held while a response is written
	ended bool
	slot  *slot     // the turn of the first sync; nil when it is over
	at    uint64    // the number of the push that it has
	types []*timing // those that are served first, in their order

	// Nil before the first request.
	proxy *discovery.Proxy
	world *place
	flow  *order.Flow
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
	ended := make(chan error, 2)
	if !s.add(c, func() { ended <- c.receive(ctx) }, func() { ended <- c.run(ctx) }) {
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
		wakes: make(chan struct{}, 1), at: s.rounds.number.Load(),
	}
	c.sending = newWatchdog(s.options.StallTimeout, func() {
		c.logger.Warn("closing a stream whose client takes nothing", "proxy", c.report.name())
		c.cancel(errStalled)
	})
	c.alarm = newAlarm(c.wake)
	c.away.Store(true)
	return c
}

// receive takes what the client says until the stream ends. Before its turn of the
// first sync nothing is read: thousands of clients who come back at one time, each
// with the versions of all that it has, wait at their own cost.
func (c *Connection) receive(ctx context.Context) error {
	slot, err := c.server.admission.enter(ctx, func() time.Time { said, _ := c.moved(); return said })
	if err != nil {
		return err
	}
	if !c.admit(slot) {
		slot.end()
		return nil
	}
	for {
		m, err := c.wire.receive()
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			c.cancel(err)
			return err
		}
		if err := c.turn(ctx, m); err != nil {
			return err
		}
	}
}

// admit begins the turn of the first sync; false where the connection has ended.
func (c *Connection) admit(slot *slot) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.slot = slot
	return !c.ended
}

// wake has run look at what is to be done. It never blocks, and may be called by
// any goroutine.
func (c *Connection) wake() {
	select {
	case c.wakes <- struct{}{}:
	default:
	}
}

// mark makes the connection dirty: what it serves is no longer the newest. It
// never blocks, and may be called by any goroutine.
func (c *Connection) mark() {
	c.dirty.Store(true)
	c.wake()
}

// run pushes, and sends what is due, until ctx ends.
func (c *Connection) run(ctx context.Context) error {
	defer c.end()
	defer context.AfterFunc(ctx, c.wake)()
	for ctx.Err() == nil {
		<-c.wakes
		if err := c.turn(ctx, nil); err != nil {
			return err
		}
	}
	return nil
}

// turn takes a request or, without one, looks at what is to be done.
func (c *Connection) turn(ctx context.Context, m *message) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended || ctx.Err() != nil {
		return nil
	}
	if c.slot != nil {
		c.slot.serves()
	}
	var err error
	switch {
	case m != nil:
		err = c.handle(ctx, m)
	case c.dirty.Swap(false):
		err = c.push(ctx)
		c.server.rounds.done(c)
	default:
		err = c.look()
	}
	switch {
	case ctx.Err() != nil:
		return nil
	case err != nil:
		return err
	}
	c.alarm.set(c.wakesAt())
	c.admitted()
	c.takeNote()
	c.server.moves.Add(1)
	return nil
}

// look sends what has become due by time alone.
func (c *Connection) look() error {
	if at := c.stallsAt(); !at.IsZero() && !time.Now().Before(at) {
		c.logger.Warn("closing a stream whose client answers nothing", "proxy", c.name())
		return errSilent
	}
	return c.flush()
}

// end gives up what the connection holds.
func (c *Connection) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	c.alarm.stop()
	c.sending.stop()
	c.away.Store(true) // no later round waits for it
	c.server.rounds.done(c)
	if c.slot != nil {
		c.slot.end()
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
	before := session.Acked().Revision
	answer := c.flow.Request(m.typeURL, m.request, time.Now())
	switch t := c.timing(m.typeURL); {
	case answer.Acked != nil:
		t.answered = time.Now()
		if answer.Acked.Revision > before {
			c.server.metrics.acked(answer.Acked.Revision, c.since)
		}
	case answer.Rejected != nil:
		t.answered = time.Now()
		c.server.metrics.rejected(t.name)
		c.logger.Warn("proxy rejected a response", "proxy", c.name(), "type", m.typeURL,
			"version", answer.Rejected.Version, "err", answer.Rejected.Message)
	}
	return c.flush()
}

// maxTypes bounds the types of a stream, which a client may make up.
const maxTypes = 64

// session finds that of a type. Of one that is not served every name is unknown.
func (c *Connection) session(typeURL string) (*stream.Session, error) {
	switch t := c.timing(typeURL); {
	case t != nil:
		return t.session, nil
	case typeURL == "":
		return nil, status.Error(codes.InvalidArgument, "a request on an aggregated stream has no type_url")
	case c.flow.Len() >= maxTypes:
		return nil, status.Errorf(codes.InvalidArgument, "type %s: the stream asks for more than %d types", typeURL, maxTypes)
	}
	session := c.flow.Add(stream.Type{URL: typeURL, Names: c.server.names})
	c.types = append(c.types, c.server.newTiming(typeURL, session))
	return session, nil
}

// identify takes the node of the first request and builds the proxy's world.
func (c *Connection) identify(ctx context.Context, node *corev3.Node) error {
	proxy, err := discovery.ParseProxy(node)
	if err != nil {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	proxy.RouteDelta = c.takesRouteDelta(node)
	c.proxy = proxy
	c.report.of(proxy)
	c.flow = c.newFlow()
	c.world = c.server.worlds.join(proxy)
	c.logger.Info("proxy connected", "proxy", proxy.ID, "variant", c.variant.String(), "envoy", proxy.EnvoyVersion)
	c.away.Store(false)
	return c.advance(ctx)
}

// askLimit is the moment that a proxy is given, when it connects again, to ask for one
// type after another: an Envoy does so at once.
const askLimit = time.Second

// newFlow makes the flow of the types that are served to the proxy.
func (c *Connection) newFlow() *order.Flow {
	o := c.server.options
	types := make([]order.Type, len(o.Types))
	for i, t := range o.Types {
		types[i] = order.Type{Type: t.streamType(c.proxy.Type), Parent: t.Parent, CoverParent: t.CoverParent, Target: t.Target}
		types[i].Names, types[i].Shared = c.server.names, c.server.shared
		if a, ok := t.For(c.proxy.Type).(generate.Announcer); ok && c.wire.one() == "" {
			types[i].Announce = a.Announce
		}
		types[i].Optional = t.Scoped && !c.proxy.RouteDelta
		if w, delta := c.wire.(deltaWire); delta && w.only != "" {
			types[i].Scoped = false // what the resources live in is of another stream
		}
	}
	flow := order.New(types, c.variant, order.Limits{Ready: o.ReadyLimit, Resolve: o.ResolveGrace, Ask: askLimit, Withdraw: o.WithdrawLimit})
	for typeURL, session := range flow.Sessions() {
		c.types = append(c.types, c.server.newTiming(typeURL, session))
	}
	return flow
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
