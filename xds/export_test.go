package xds

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/xds/encoded"
	"github.com/portolan-mesh/portolan/xds/generate"
	"github.com/portolan-mesh/portolan/xds/memo"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/resource"
	"github.com/portolan-mesh/portolan/xds/stream"
)

// TestWorlds shows the worlds of all classes to tests.
type TestWorlds struct {
	*worlds
	newest func() *mesh.PushContext
}

// NewTestWorlds makes worlds that follow what newest returns.
func NewTestWorlds(types []ResourceType, m *memo.Memo, newest func() *mesh.PushContext) TestWorlds {
	return TestWorlds{newWorlds(types, m, slog.New(slog.DiscardHandler)), newest}
}

// Join makes the place of a proxy.
func (w TestWorlds) Join(proxy *discovery.Proxy) TestWorld {
	return TestWorld{w.join(proxy), w.newest}
}

// Classes is how many worlds there are.
func (w TestWorlds) Classes() int { return w.count() }

// TestWorld shows a place among the worlds to tests.
type TestWorld struct {
	*place
	newest func() *mesh.PushContext
}

// NewTestWorld makes the place of a proxy among worlds of its own.
func NewTestWorld(proxy *discovery.Proxy, types []ResourceType, m *memo.Memo, logger *slog.Logger) TestWorld {
	return TestWorld{newWorlds(types, m, logger).join(proxy), nil}
}

// Advance brings the place to a context.
func (w TestWorld) Advance(to *mesh.PushContext) {
	w.advance(func() *mesh.PushContext { return to })
}

// Follow brings the place to the newest context.
func (w TestWorld) Follow() { w.advance(w.newest) }

// Close gives up what the place holds.
func (w TestWorld) Close() { w.close() }

// Set is the resources of a type by its short name.
func (w TestWorld) Set(name string) resource.Set {
	for _, t := range w.worlds.types {
		if t.Name == name {
			return w.resources(t.Generator.TypeURL())
		}
	}
	return resource.Set{}
}

// Versions are the versions of the resources by type and name.
func (w TestWorld) Versions() map[string]string {
	out := map[string]string{}
	for _, t := range w.worlds.types {
		for name, r := range w.resources(t.Generator.TypeURL()).All() {
			out[t.Name+" "+name] = r.Version
		}
	}
	return out
}

// Walked are the versions of the resources that a full walk makes, without memo,
// delta or neighbours: what the world must equal at any time.
func (w TestWorld) Walked() (map[string]string, error) {
	class := w.context().ClassOf(w.proxy)
	k := walker{
		view: mesh.NewView(w.context(), class), delta: mesh.Diff(nil, w.context()), kind: w.proxy.Type,
		types: w.worlds.types, built: map[string]map[string]*resource.Resource{},
	}
	out := map[string]string{}
	for _, t := range w.worlds.types {
		built, err := k.all(t)
		if err != nil {
			return nil, err
		}
		for name, r := range built {
			out[t.Name+" "+name] = r.Version
		}
		if t.Inbound == nil || w.proxy.Type != discovery.Sidecar {
			continue
		}
		inbound, err := walk(t.Inbound, k.view.Of(w.proxy), k.delta)
		if err != nil {
			return nil, err
		}
		for name, r := range inbound {
			out[t.Name+" "+name] = r.Version
		}
	}
	return out, nil
}

// walker builds all types once.
type walker struct {
	view  *mesh.View
	delta mesh.Delta
	kind  discovery.ProxyType
	types []ResourceType
	built map[string]map[string]*resource.Resource // by type URL
}

func (k walker) all(t ResourceType) (map[string]*resource.Resource, error) {
	url := t.Generator.TypeURL()
	if done := k.built[url]; done != nil {
		return done, nil
	}
	built, err := walk(t.For(k.kind), k.view, k.delta)
	if err != nil {
		return nil, err
	}
	if c, ok := t.For(k.kind).(generate.Composer); ok {
		if built, err = k.compose(c, built); err != nil {
			return nil, err
		}
	}
	for name, r := range built {
		if parent := k.built[t.Parent][name]; parent != nil && t.CoverParent {
			built[name] = r.Under(parent.Version)
		}
	}
	k.built[url] = built
	return built, nil
}

func (k walker) compose(c generate.Composer, own map[string]*resource.Resource) (map[string]*resource.Resource, error) {
	i := slices.IndexFunc(k.types, func(t ResourceType) bool { return t.Generator.TypeURL() == c.PartsURL() })
	parts, err := k.all(k.types[i])
	if err != nil {
		return nil, err
	}
	for name, o := range own {
		var of []*resource.Resource
		for _, p := range parts {
			if rest, ok := strings.CutPrefix(p.Name, name+"/"); ok && !strings.Contains(rest, "/") {
				of = append(of, p)
			}
		}
		slices.SortFunc(of, func(a, b *resource.Resource) int { return strings.Compare(a.Name, b.Name) })
		if own[name], err = c.Compose(o, slices.Values(of)); err != nil {
			return nil, err
		}
	}
	return own, nil
}

// walk builds every resource of a generator anew.
func walk(g generate.Generator, view *mesh.View, delta mesh.Delta) (map[string]*resource.Resource, error) {
	out := map[string]*resource.Resource{}
	for name := range g.Affected(view, delta) {
		r, err := g.Build(view, name)
		if err != nil {
			return nil, fmt.Errorf("build %s: %w", name, err)
		}
		if r != nil {
			out[name] = r
		}
	}
	return out, nil
}

// Inputs are what the server committed last.
func (s *DiscoveryServer) Inputs() mesh.Inputs { return *s.inputs.Load() }

// ReportAllocations is what it takes to report a connection of a proxy in which
// nothing has changed since it was reported.
func (s *DiscoveryServer) ReportAllocations(proxy *discovery.Proxy) float64 {
	c := s.newConnection(stream.Delta, deltaWire{}, nil)
	c.proxy = proxy
	c.flow = c.newFlow()
	for typeURL, session := range c.flow.Sessions() {
		session.Request(stream.Request{})
		session.Next(stream.All())
		c.timing(typeURL).sent = time.Now()
	}
	c.takeNote()
	return testing.AllocsPerRun(10, c.takeNote)
}

// LimitFirstSyncs has turns end in another time, and streams refused when so many
// wait. It is called before there are streams.
func (s *DiscoveryServer) LimitFirstSyncs(silence, limit time.Duration, room int) {
	s.admission.silence, s.admission.limit, s.admission.room = silence, limit, int64(room)
}

// TestAdmission is admission whose turns a test takes.
type TestAdmission struct{ *admission }

// NewTestAdmission is admission of so many at a time, with room for so many to wait.
func NewTestAdmission(size, room int) TestAdmission {
	a := newAdmission(size)
	a.room = int64(room)
	return TestAdmission{a}
}

// Enter waits for a turn, in which the client is heard last at some time, and owes an
// answer or not.
func (a TestAdmission) Enter(ctx context.Context, owes bool, heard time.Time) error {
	s, err := a.enter(ctx, func() time.Time { return heard })
	if err == nil {
		s.serves()
		s.rests(owes)
	}
	return err
}

// Built is how many built resources the server holds.
func (s *DiscoveryServer) Built() int { return s.memo.Len() }

// TestConnection is a connection in delta whose client is the test: nothing happens
// but in its calls, and no goroutine works for it.
type TestConnection struct {
	c      *Connection
	client *client
}

// client is the stream of a client that takes everything, and what it says next.
type client struct {
	grpc.ServerStream
	says []byte
}

func (*client) SendMsg(any) error { return nil }

func (c *client) RecvMsg(m any) error {
	return encoded.Codec().Unmarshal(mem.BufferSlice{mem.SliceBuffer(c.says)}, m)
}

// Connect makes the connection of a proxy that asks for all there is, and takes it.
// The server serves a context, and does not run.
func (s *DiscoveryServer) Connect(tb testing.TB, at *mesh.PushContext, node *corev3.Node) TestConnection {
	tb.Helper()
	s.context.Store(at)
	_, cancel := context.WithCancelCause(tb.Context())
	c := TestConnection{client: &client{}}
	c.c = s.newConnection(stream.Delta, newDeltaWire("", s.encoded, s.names, c.client), cancel)
	for _, t := range s.options.Types {
		request := stream.Request{}
		if t.Parent != "" && !t.Scoped {
			var names []string
			for r := range c.c.flow.Session(t.Parent).All().Values() {
				names = append(names, r.Children...)
			}
			request.Subscribe = s.names.Of(names)
		}
		c.take(tb, &message{node: node, typeURL: t.Generator.TypeURL(), request: request})
	}
	c.Acknowledge(tb)
	tb.Cleanup(c.c.end)
	return c
}

func (c TestConnection) take(tb testing.TB, m *message) {
	if err := c.c.turn(tb.Context(), m); err != nil {
		tb.Fatal(err)
	}
}

// Push brings the connection to a context, and says how many responses that takes.
func (c TestConnection) Push(tb testing.TB, to *mesh.PushContext) (responses int) {
	tb.Helper()
	c.c.server.context.Store(to)
	c.c.dirty.Store(true)
	c.take(tb, nil)
	return c.Acknowledge(tb)
}

// acknowledge has the client say that it has taken a response.
func (c TestConnection) acknowledge(tb testing.TB, typeURL, nonce string) {
	const typeURLField, nonceField = 2, 6 // of a request in delta
	says := protowire.AppendTag(c.client.says[:0], typeURLField, protowire.BytesType)
	says = protowire.AppendString(says, typeURL)
	says = protowire.AppendTag(says, nonceField, protowire.BytesType)
	c.client.says = protowire.AppendString(says, nonce)
	m, err := c.c.wire.receive()
	if err != nil {
		tb.Fatal(err)
	}
	c.take(tb, m)
}

// CheckNotes holds what is noted of the client against what its sessions say.
func (c TestConnection) CheckNotes(tb testing.TB) {
	tb.Helper()
	for i := range c.c.server.options.Types {
		noted := c.c.report.standing(i).status
		if said := c.c.flow.Session(c.c.types[i].url).Status(); noted != said {
			tb.Errorf("%s: noted %+v, is %+v", c.c.types[i].name, noted, said)
		}
	}
	c.take(tb, nil) // they come to rest again
}

// Acknowledge has the client take what is under way, until nothing is.
func (c TestConnection) Acknowledge(tb testing.TB) (responses int) {
	tb.Helper()
	for again := true; again; {
		again = false
		for _, t := range c.c.types {
			if t.session.InFlight() {
				c.acknowledge(tb, t.url, t.session.Status().Sent.Nonce)
				again, responses = true, responses+1
			}
		}
	}
	return responses
}
