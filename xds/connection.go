package xds

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/xds/admission"
	"github.com/portolan-mesh/portolan/xds/delivery"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/desired"
	"github.com/portolan-mesh/portolan/xds/generate"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/progress"
	"github.com/portolan-mesh/portolan/xds/resource"
	"github.com/portolan-mesh/portolan/xds/transcript"
)

var (
	errShutdown = status.Error(codes.Unavailable, "the control plane is stopping")
	errStalled  = status.Error(codes.Unavailable, "the client took nothing for too long")
	errMoved    = status.Error(codes.Unavailable, "another replica has fewer proxies: connect anew")
	errSilent   = status.Error(codes.Unavailable, "the client answered nothing for too long")
	errMute     = status.Errorf(codes.DeadlineExceeded, "the client began no request, or sent no more of one that it began, for %s", requestTimeout)
)

// Connection is one stream of one client. Two goroutines share it. receive reads requests,
// handles each, and sends what may go after it. run pushes new contexts, and sends what
// becomes due with time. Each holds mu while it handles, pushes or sends.
type Connection struct {
	server *DiscoveryServer
	wire   *wire
	cancel context.CancelCauseFunc
	since  time.Time
	// admitted is the stream as the gate knows it: who the client is, and what it costs.
	admitted *admission.Stream

	wakes          chan struct{}                     // holds a token while run has something to do; see wake
	dirty          atomic.Bool                       // a push is due; see mark
	waitsForClient atomic.Bool                       // the connection has no proxy yet, or its client has yet to take a response
	identified     atomic.Bool                       // the proxy is known, so publish marks the connection
	sending        *time.Timer                       // limits how long a response is written
	receiving      *time.Timer                       // limits how long a request is read, and the wait for the first
	alarm          *time.Timer                       // wakes run when something becomes due
	note           progress.Note                     // the progress of the proxy, for other goroutines
	reads          atomic.Pointer[mesh.Rows]         // the desired.Member's Reads at the last push; nil before
	transcript     atomic.Pointer[transcript.Stream] // nil before the proxy is known

	awaited uint64 // the generation that waits for the connection, 0 for none; the lock of generations guards it

	mu         sync.Mutex // guards the fields below, and is held while a response is written
	ended      bool
	generation uint64       // the generation of the last push
	types      []*typeState // the served types in their order, then the unknown ones
	nameBytes  int64        // the size of the names that the client subscribes to

	// The fields below are unset before the first request.
	proxy        *discovery.Proxy
	agent        string      // the user agent that the client names; empty if it names none
	served       servedTypes // the types that the client is served
	desired      desiredResources
	member       *desired.Member // what a proxy should have; nil for a control plane
	sequencer    *delivery.Sequencer
	registration discovery.Registration // nil without a Registrar
	told         machineTold
}

// message is a request of either variant.
type message struct {
	node    *corev3.Node
	typeURL string
	request protocol.Request
	code    codes.Code // of the error detail; OK without one
}

// serve runs a stream until the client ends it, the server stops, or the client stalls.
// Receiving and sending block in goroutines of their own. They end once serve has
// returned and gRPC has ended the stream; Run waits for them.
func (s *DiscoveryServer) serve(variant protocol.Variant, typeURL string, g grpc.ServerStream) error {
	from, ok := grpc.ServerTransportStreamFromContext(g.Context()).(transport)
	if !ok {
		return status.Error(codes.Internal, "the requests of this kind of stream cannot be read")
	}
	if err := s.Ready(); err != nil {
		return status.Error(codes.Unavailable, "the control plane is not ready: "+err.Error())
	}
	ctx, cancel := context.WithCancelCause(g.Context())
	defer cancel(nil)
	admitted, err := s.Gate.Open(ctx, cancel)
	if err != nil {
		return err
	}
	c := s.newConnection(admitted, &wire{variant: variant, only: typeURL, from: from, stream: g}, cancel)
	defer s.remove(c)
	defer admitted.Release()
	ended := make(chan error, 2)
	if !s.add(c, func() { ended <- c.receive(ctx) }, func() { ended <- c.run(ctx) }) {
		return errShutdown
	}
	select {
	case err = <-ended:
	case <-ctx.Done():
	}
	if cause := context.Cause(ctx); cause != nil {
		if _, ok := status.FromError(cause); ok {
			return cause // the client is told why its stream was ended
		}
	}
	return err
}

func (s *DiscoveryServer) newConnection(admitted *admission.Stream, w *wire, cancel context.CancelCauseFunc) *Connection {
	c := &Connection{
		server: s, wire: w, admitted: admitted, cancel: cancel, since: time.Now(),
		wakes: make(chan struct{}, 1), generation: s.generations.number.Load(),
	}
	w.c = c
	c.sending = stopped(func() {
		c.server.logger.Warn("closing a stream whose client takes nothing", "proxy", c.note.Node())
		c.cancel(errStalled)
	})
	c.receiving = stopped(func() { c.cancel(errMute) })
	c.alarm = stopped(c.wake)
	c.waitsForClient.Store(true)
	return c
}

// stopped returns a timer that does not run yet.
func stopped(f func()) *time.Timer {
	t := time.AfterFunc(time.Hour, f)
	t.Stop()
	return t
}

// receive reads requests until the stream ends. A client gets a first-sync slot only
// once it begins a request, and the server reads that request only once the client has its
// slot. When thousands of clients reconnect at once, each with the versions of all its
// resources, the requests that wait cost the clients memory, not the server.
func (c *Connection) receive(ctx context.Context) error {
	c.receiving.Reset(requestTimeout)
	err := c.wire.begin()
	c.receiving.Stop()
	if err == nil {
		err = c.admitted.BeginSync(ctx, c.wire.lastHeard)
	}
	for err == nil {
		var m *message
		if m, err = c.wire.receive(); err == nil {
			err = c.turn(ctx, m)
		}
		if err == nil {
			err = c.wire.begin()
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	c.cancel(err)
	return err
}

// wake makes run look for work. It never blocks; any goroutine may call it.
func (c *Connection) wake() {
	select {
	case c.wakes <- struct{}{}:
	default:
	}
}

// mark makes the connection dirty: a newer context was published. It never blocks; any
// goroutine may call it.
func (c *Connection) mark() {
	c.dirty.Store(true)
	c.wake()
}

// run pushes and sends until ctx ends.
func (c *Connection) run(ctx context.Context) (err error) {
	defer func() { c.end(cmp.Or(err, context.Cause(ctx))) }()
	defer context.AfterFunc(ctx, c.wake)()
	for ctx.Err() == nil {
		<-c.wakes
		if err := c.turn(ctx, nil); err != nil {
			return err
		}
	}
	return nil
}

// turn handles a request. Without one it pushes if the connection is dirty, else it
// sends what has become due.
func (c *Connection) turn(ctx context.Context, m *message) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended || ctx.Err() != nil {
		return nil
	}
	c.admitted.StopClocks()
	var err error
	switch {
	case m != nil:
		err = c.handle(ctx, m)
	case c.dirty.Swap(false):
		err = c.push(ctx)
		c.server.generations.done(c)
	default:
		err = c.sendDue()
	}
	if err == nil {
		err = c.tellStanding()
	}
	switch {
	case ctx.Err() != nil:
		return nil
	case err != nil:
		return err
	}
	c.setAlarm()
	c.finishFirstSync()
	c.updateNote()
	c.server.changeCount.Add(1)
	return nil
}

// finishFirstSync ends the connection's first sync once its client has acknowledged listeners:
// an Envoy asks for these when it has clusters and endpoints. On a stream of one type
// the client must acknowledge that type. A control plane that takes objects must have
// acknowledged all that it has requested.
func (c *Connection) finishFirstSync() {
	if !c.admitted.Syncing() {
		return
	}
	inFlight, pending, done := false, false, false
	if c.sequencer != nil {
		for typeURL, sub := range c.sequencer.Subscriptions() {
			last := typeURL == c.wire.only || c.served.nameOf(typeURL) == "LDS" || c.member == nil
			done = done || last && sub.Started() && !sub.Pending()
			pending = pending || sub.Started() && sub.Pending()
			inFlight = inFlight || sub.InFlight()
		}
	}
	if done && (c.member != nil || !pending) {
		c.admitted.Synced()
		return
	}
	c.admitted.StartClocks(inFlight)
}

// setAlarm wakes run when something becomes due, even if nothing happens until then.
func (c *Connection) setAlarm() {
	at := c.stallsAt()
	if c.sequencer != nil {
		if wake := c.sequencer.Wake(); at.IsZero() || !wake.IsZero() && wake.Before(at) {
			at = wake
		}
	}
	if at.IsZero() {
		c.alarm.Stop()
	} else {
		c.alarm.Reset(time.Until(at))
	}
}

// stallsAt returns when the client must have answered the oldest response in flight;
// zero if none is.
func (c *Connection) stallsAt() time.Time {
	var oldest time.Time
	for i, t := range c.types {
		if c.sequencer.Idle(i) == 0 && t.subscription.InFlight() && (oldest.IsZero() || t.SentAt.Before(oldest)) {
			oldest = t.SentAt
		}
	}
	if oldest.IsZero() {
		return oldest
	}
	return oldest.Add(c.server.options.StallTimeout)
}

// sendDue sends what has become due by time alone, and ends a stream whose client stalls.
func (c *Connection) sendDue() error {
	if at := c.stallsAt(); !at.IsZero() && !time.Now().Before(at) {
		c.server.logger.Warn("closing a stream whose client answers nothing", "proxy", c.note.Node())
		return errSilent
	}
	return c.flush()
}

// end releases what the connection holds.
func (c *Connection) end(why error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	c.alarm.Stop()
	c.sending.Stop()
	c.receiving.Stop()
	c.waitsForClient.Store(true) // no later push waits for it
	c.server.generations.done(c)
	if c.registration != nil {
		c.registration.Leave()
	}
	if s := c.transcript.Load(); s != nil {
		c.server.transcripts.Close(c.proxy.ID, s, reasonOf(why))
	}
	if c.desired != nil {
		c.desired.Close()
		c.server.logger.Info("proxy disconnected", "proxy", c.note.Node())
	}
}

func (c *Connection) handle(ctx context.Context, m *message) error {
	if c.proxy == nil {
		if err := c.identify(ctx, m); err != nil {
			return err
		}
	}
	if note := machineRequests[m.typeURL]; note != nil {
		note(c, m)
		return c.flush()
	}
	t, err := c.serveType(m.typeURL)
	if err != nil {
		return err
	}
	sub := t.subscription
	if !sub.Started() {
		if err := c.noteFirst(ctx, m); err != nil {
			return err
		}
	}
	before, searching := sub.LastACK().Revision, sub.Searching()
	sentAt := t.SentAt
	answer := c.sequencer.Request(m.typeURL, m.request, time.Now())
	c.transcribe(t, m, answer, time.Since(sentAt))
	if err := c.chargeNames(t); err != nil {
		return err
	}
	if err := c.serveListeners(ctx, t); err != nil {
		return err
	}
	if t.url == resource.SecretType {
		c.noteRefusedSecrets(t)
	}
	switch {
	case answer.ACK != nil:
		if m.typeURL == resource.ListenerType && c.registration != nil {
			c.registration.Ready()
		}
		t.AnsweredAt = time.Now()
		if answer.ACK.Revision > before && c.member != nil {
			c.server.metrics.acked(answer.ACK.Revision, c.since)
		}
	case answer.NACK != nil:
		t.AnsweredAt = time.Now()
		t.counts.rejections.Inc() // repeated ones, too, which are not logged
		if !searching && sub.Searching() && t.noteRejection("", answer.NACK.Version, answer.NACK.Message) {
			c.server.logger.Warn("proxy rejected a response, which is sent again in parts", "proxy", c.note.Node(), "type", m.typeURL,
				"version", answer.NACK.Version, "err", progress.Shorten(answer.NACK.Message, maxLogged))
		}
	}
	return c.flush()
}

const (
	// maxTypes bounds the types of a stream, and maxType the length of a type URL.
	// Clients may make up both.
	maxTypes, maxType = 64, 1 << 10
	// maxNode bounds the node of a request. An Envoy lists its extensions there, some
	// tens of kilobytes.
	maxNode = 1 << 20
	// maxComplaint bounds how much of a NACK's message is kept, and maxLogged how much
	// of it is logged.
	maxComplaint, maxLogged = 16 << 10, 4 << 10
)

// For a type that is not served serveType makes a state with no resources: every name is
// unknown.
func (c *Connection) serveType(typeURL string) (*typeState, error) {
	t := c.typeState(typeURL)
	switch {
	case t != nil:
		return t, nil
	case typeURL == "":
		return nil, status.Error(codes.InvalidArgument, "a request on an aggregated stream has no type_url")
	case len(typeURL) > maxType:
		return nil, status.Errorf(codes.InvalidArgument, "a type_url has %d bytes, and may have %d", len(typeURL), maxType)
	case len(c.types) >= maxTypes:
		return nil, status.Errorf(codes.InvalidArgument, "type %s: the stream asks for more than %d types", typeURL, maxTypes)
	}
	unknown := protocol.Type{URL: typeURL, Names: c.server.names}
	if c.proxy.Type == discovery.ConfigClient {
		unknown.Full, unknown.AlwaysAnswered = true, true // it waits for an answer for each kind that it knows
		c.server.logger.Info("a control plane asks for a kind that is not exported, and is told that there is none", "proxy", c.note.Node(), "type", typeURL)
	}
	t = c.newTypeState(typeURL, c.sequencer.Add(unknown))
	c.types = append(c.types, t)
	return t, nil
}

// identify reads the node of the first request, and derives what the proxy should have.
func (c *Connection) identify(ctx context.Context, m *message) error {
	node := m.node
	if size := proto.Size(node); size > maxNode {
		return status.Errorf(codes.InvalidArgument, "the node of the first request has %d bytes, and may have %d", size, maxNode)
	}
	proxy, err := discovery.ParseProxy(node)
	if err != nil {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	if err := c.refuseSeparateStream(node); err != nil {
		return err
	}
	if proxy.Type == discovery.ConfigClient && c.server.options.Export == nil {
		return errNoExport
	}
	proxy.RouteDelta, proxy.Local = c.takesRouteDelta(node), isLocal(c.admitted.Remote())
	proxy.Returning = m.request.StatesResources()
	if err := c.admitted.Admit(ctx, proxy); err != nil {
		return err
	}
	c.proxy, c.agent = proxy, node.GetUserAgentName()
	c.note.Identify(proxy)
	c.transcript.Store(c.server.transcripts.Open(proxy.ID, fmt.Sprintf("%s, from %v", c.wire.variant, c.admitted.Remote())))
	c.server.departures.Return(proxy.ID)
	if r := c.server.options.Registrar; r != nil {
		proxy.GroupLabels = r.Labels(proxy)
	}
	c.join(proxy)
	c.sequencer = c.newSequencer()
	c.server.logger.Info("proxy connected", "type", string(proxy.Type), "proxy", proxy.ID, "identity", proxy.Identity, "variant", c.wire.variant.String(), "envoy", proxy.EnvoyVersion)
	c.waitsForClient.Store(false)
	if r := c.server.options.Registrar; r != nil {
		c.registration = r.Join(proxy, c.wake)
	}
	c.identified.Store(true) // before advance reads the published context: later ones are pushed
	return c.advance(ctx)
}

// askLimit is how long a reconnected proxy may take to subscribe to one type after
// another. An Envoy subscribes at once.
const askLimit = time.Second

// newSequencer makes the Sequencer of the types that are served to the proxy.
func (c *Connection) newSequencer() *delivery.Sequencer {
	o, exports, removals := c.server.options, c.proxy.Type == discovery.ConfigClient, c.takesRemovals()
	types := make([]delivery.Type, len(c.served))
	for i := range c.served {
		t, generator := &c.served[i], c.served[i].For(c.proxy.Type)
		out := &types[i]
		*out = delivery.Type{
			Type: protocol.Type{
				URL: t.url, Full: t.Full, Scoped: t.Scoped, ByName: t.Needed, AlwaysAnswered: exports, Names: c.server.names, Shared: c.server.shared,
			},
			Needs: t.Needs, Together: exports,
			Optional: t.Scoped && !c.proxy.RouteDelta || c.wire.only != "" && c.wire.only != t.url,
		}
		if t.Otherwise != nil {
			out.Otherwise = func(name string) (*resource.Resource, error) { return generate.Otherwise(t.ResourceType, name) }
		}
		if t.Turn != nil {
			out.Turn = func(has, wants *resource.Resource) (turn delivery.Turn) {
				turn.Number, turn.Interim = generate.Turn(t.ResourceType, has, wants)
				return turn
			}
		}
		// Clients that take removals get a removal for an unknown name, all others an empty
		// resource.
		if e, ok := generate.As[generate.Emptier](generator); ok && !removals {
			out.Empty = func(name string) (*resource.Resource, error) { return generate.Empty(e, name) }
		}
		if a, ok := generate.As[generate.Announcer](generator); ok && c.wire.only == "" {
			out.Preannounce = func(has *resource.Resource, clusters []string) (*resource.Resource, error) {
				return generate.Announce(a, has, clusters)
			}
		}
		if c.wire.variant == protocol.Delta && c.wire.only != "" {
			out.Scoped = false // the parents are on another stream
		}
	}
	limits := delivery.Limits{Ready: o.ReadyLimit, Resolve: o.ResolveGrace, Ask: askLimit, Withdraw: o.WithdrawLimit}
	if o.LastActivity != nil {
		limits.LastActivity = func() (read, written time.Time) { return o.LastActivity(c.admitted.Remote()) }
	}
	sequencer := delivery.New(types, c.wire.variant, limits)
	for typeURL, sub := range sequencer.Subscriptions() {
		c.types = append(c.types, c.newTypeState(typeURL, sub))
	}
	return sequencer
}
