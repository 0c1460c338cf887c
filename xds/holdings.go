package xds

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/progress"
)

// The errors of DiscoveryServer.Holdings.
var (
	ErrNotConnected = errors.New("the proxy is not connected to this server")
	ErrBusy         = errors.New("the proxy is slow to take a response that is being sent: try again in a moment")
)

// Holdings says what a connected client should have, and what it has. The client is a
// proxy, or a control plane that takes objects.
type Holdings struct {
	Proxy   *discovery.Proxy
	Variant protocol.Variant // of its newest stream
	// Revision is the revision of the store that the desired resources are built from.
	Revision int64
	// Types are the types that the proxy is served, in their order.
	Types []TypeHoldings
}

// TypeHoldings lists the resources of one type that a client should have, or has.
type TypeHoldings struct {
	Name, TypeURL string
	// Requested says that the proxy has requested the type.
	Requested bool
	Resources []Holding
}

// Holding is one resource that a client should have, or has, and the objects behind it,
// ordered by path.
type Holding struct {
	protocol.Holding
	Objects []config.Key
	// Patches are what became of the patches of EnvoyFilters on what the client should have.
	Patches []mesh.PatchNote
	// Blamed are the objects to which the client's rejection is due, as far as they are known.
	Blamed []config.Key
}

// Holdings returns what the client with a node id should have and has, of the types whose
// short names the function accepts; nil accepts all. If several of its streams requested a
// type, the newest counts. Holdings locks only the streams of this client.
func (s *DiscoveryServer) Holdings(ctx context.Context, node string, types func(name string) bool) (*Holdings, error) {
	streams := slices.DeleteFunc(s.all(), func(c *Connection) bool { return c.note.Node() != node })
	slices.SortFunc(streams, func(a, b *Connection) int { return cmp.Compare(a.since.UnixNano(), b.since.UnixNano()) })
	out := &Holdings{}
	for _, c := range streams {
		if err := c.holdings(ctx, out, types); err != nil {
			return nil, err
		}
	}
	if out.Proxy == nil {
		return nil, ErrNotConnected
	}
	return out, nil
}

// Refused returns the resources that the client with a node id rejects, also on several streams; none
// for one that is not connected, or takes a response just now.
func (s *DiscoveryServer) Refused(ctx context.Context, node string) (out []progress.Refused) {
	for _, c := range s.all() {
		if c.note.Node() == node && c.lock(ctx) == nil {
			out = append(out, c.refused()...)
			c.mu.Unlock()
		}
	}
	return out
}

// refused returns the resources that the client of the stream rejects. The caller holds the lock.
func (c *Connection) refused() (out []progress.Refused) {
	if c.ended {
		return nil
	}
	for _, t := range c.types {
		for _, r := range t.Rejections {
			out = append(out, progress.Refused{TypeURL: t.url, Name: r.Name, Message: r.Message, Objects: r.Objects, Has: t.subscription.Acked(r.Name)})
		}
	}
	return out
}

const (
	// lockPatience is how long Holdings waits for a connection whose client takes a
	// response. lockInterval is how often it looks.
	lockPatience, lockInterval = 2 * time.Second, 5 * time.Millisecond
)

// lock takes the lock of a connection, which a slow client may hold up.
func (c *Connection) lock(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, lockPatience)
	defer cancel()
	for !c.mu.TryLock() {
		select {
		case <-ctx.Done():
			return ErrBusy
		case <-time.After(lockInterval):
		}
	}
	return nil
}

// holdings puts the types that the client requested on this stream into out, in place of
// what older streams requested of them.
func (c *Connection) holdings(ctx context.Context, out *Holdings, types func(name string) bool) error {
	if err := c.lock(ctx); err != nil {
		return err
	}
	defer c.mu.Unlock()
	if c.ended || c.desired == nil || c.desired.Context() == nil { // it has no resources yet
		return nil
	}
	for i := range c.served {
		if t := &c.served[i]; out.Proxy == nil && (types == nil || types(t.Name)) {
			out.Types = append(out.Types, TypeHoldings{Name: t.Name, TypeURL: t.url})
		}
	}
	out.Proxy, out.Variant, out.Revision = c.proxy, c.wire.variant, c.desired.Context().Revision()
	for i := range out.Types {
		t := &out.Types[i]
		state := c.typeState(t.TypeURL)
		if state == nil || !state.subscription.Started() {
			continue
		}
		t.Requested, t.Resources = true, nil
		for _, h := range state.subscription.Holdings(c.desired.Resources(t.TypeURL)) {
			one := Holding{Holding: h, Objects: c.objectsBehind(t.TypeURL, h), Patches: c.patchesOf(t.TypeURL, h)}
			if i := slices.IndexFunc(state.Rejections, func(r progress.Rejected) bool { return r.Name == h.Name }); i >= 0 && h.Rejected != nil {
				one.Blamed = state.Rejections[i].Objects
			}
			t.Resources = append(t.Resources, one)
		}
	}
	return nil
}

// objectsBehind returns the objects from which a resource and its parts were built. For
// another form than the desired one, it knows only the objects that the form's metadata
// name.
func (c *Connection) objectsBehind(typeURL string, h protocol.Holding) (keys []config.Key) {
	if h.Desired != nil || c.member == nil { // a resource of a control plane is its object
		keys = c.originsOf(typeURL, h.Name)
	}
	if h.Desired != nil {
		for _, part := range h.Desired.Parts {
			keys = append(keys, c.originsOf(part.Body.GetTypeUrl(), part.Name)...)
		}
	}
	if h.Acked != nil && !h.InSync() {
		keys = append(keys, namedIn(h.Acked)...)
	}
	return inOrder(keys)
}

// patchesOf returns what became of the patches on a resource and its parts, each once.
func (c *Connection) patchesOf(typeURL string, h protocol.Holding) []mesh.PatchNote {
	out := slices.Clone(c.desired.Patches(typeURL, h.Name))
	if h.Desired == nil {
		return out
	}
	for _, part := range h.Desired.Parts {
		for _, p := range c.desired.Patches(part.Body.GetTypeUrl(), part.Name) {
			if !slices.Contains(out, p) {
				out = append(out, p)
			}
		}
	}
	return out
}

// originsOf returns the objects from which a desired resource was built.
func (c *Connection) originsOf(typeURL, name string) []config.Key {
	i := slices.IndexFunc(c.types, func(t *typeState) bool { return t.url == typeURL })
	if i < 0 {
		return nil
	}
	return slices.Clone(c.desired.Origins(i, name))
}
