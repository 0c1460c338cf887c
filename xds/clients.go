package xds

import (
	"context"
	"slices"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/generate"
	"github.com/portolan-mesh/portolan/xds/names"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// This file has what the server does for one kind of client and not for another.

const envoyAgent = "envoy"

var errSeparateStreams = status.Error(codes.FailedPrecondition, "an Envoy gets clusters and listeners on an aggregated stream only (ADS), since they name it as the source of their endpoints and routes: "+
	"have dynamic_resources name an ads_config, and ads: {} for cds_config and lds_config, as `portolan bootstrap` does")

// errNoExport ends the stream of a control plane that asks for objects.
var errNoExport = status.Error(codes.Unimplemented, "this server exports no objects to other control planes (GENERATOR: api)")

// refuseSeparateStream refuses an Envoy that requests clusters or listeners on a stream of their
// own. Envoy would reject each resource, with messages that do not say why.
func (c *Connection) refuseSeparateStream(node *corev3.Node) error {
	if only := c.wire.only; node.GetUserAgentName() == envoyAgent && (only == resource.ClusterType || only == resource.ListenerType) {
		return errSeparateStreams
	}
	return nil
}

// takesRemovals says whether the client learns from a removal that a requested name
// does not exist, whatever the type. Only delta clients do. Envoys do not, since they
// ignore removals of endpoints and routes; gRPC clients do not, nor do clients without
// a user agent.
func (c *Connection) takesRemovals() bool {
	return c.wire.variant == protocol.Delta && c.agent != "" && c.agent != envoyAgent && c.proxy.Type != discovery.Proxyless
}

// firstRouteDelta is the oldest version of Envoy that is known to take virtual hosts by
// delta (VHDS) as this server sends them: 1.40.
var firstRouteDelta = []uint32{1, 40}

// takesRouteDelta says whether the client takes virtual hosts as resources of their
// own. An Envoy of a known version does so over an aggregated delta stream: its route
// configurations tell it to look for virtual hosts there. All other clients get virtual
// hosts within route configurations.
func (c *Connection) takesRouteDelta(node *corev3.Node) bool {
	if c.wire.variant != protocol.Delta || c.wire.only != "" || c.server.options.WholeRoutes || node.GetUserAgentName() != envoyAgent {
		return false
	}
	v := node.GetUserAgentBuildVersion().GetVersion()
	return slices.Compare([]uint32{v.GetMajorNumber(), v.GetMinorNumber()}, firstRouteDelta) >= 0
}

// hasWholeRoutes says whether the first request for a composed type lists whole resources,
// which another server sent. If this server sent such a client a frame and then its parts,
// the client would have no parts between the two.
func (c *Connection) hasWholeRoutes(m *message) bool {
	t, known := c.served.named(m.typeURL)
	if !known || !c.proxy.RouteDelta {
		return false
	}
	if _, composed := generate.As[generate.Composer](t.Generator); !composed {
		return false
	}
	served := c.desired.Resources(m.typeURL)
	for _, has := range m.request.Initial {
		if _, ok := served.Get(has.Name); ok && !resource.IsApart(has.Version) && !isEmpty(t.Generator, has.Name, has.Version) {
			return true
		}
	}
	return false
}

// isEmpty says whether a version is the version of the empty resource for an unknown name.
func isEmpty(g generate.Generator, name, version string) bool {
	e, ok := generate.As[generate.Emptier](g)
	if !ok {
		return false
	}
	empty, err := generate.Empty(e, name)
	return err == nil && empty != nil && empty.Version == version
}

// serveWholeRoutes makes this stream serve whole resources. A client that holds whole
// resources keeps to them until it restarts.
func (c *Connection) serveWholeRoutes(ctx context.Context) error {
	for _, t := range c.served {
		if t.Scoped {
			c.sequencer.MakeOptional(t.url)
		}
	}
	return c.changeProxy(ctx, func(p *discovery.Proxy) { p.RouteDelta = false })
}

// serveListeners makes the listeners that a gRPC server asks for. Only it knows at which addresses
// it serves.
func (c *Connection) serveListeners(ctx context.Context, t *typeState) error {
	if t.url != resource.ListenerType || c.proxy.Type != discovery.Proxyless {
		return nil
	}
	var listeners []string
	for name := range t.subscription.Names().All() {
		if strings.HasPrefix(name, names.GRPCServerListenerPrefix) {
			listeners = append(listeners, name)
		}
	}
	if slices.Equal(listeners, c.proxy.Listeners) {
		return nil
	}
	return c.changeProxy(ctx, func(p *discovery.Proxy) { p.Listeners = listeners })
}

// noteFirst notes what the first request of a type says of the client: that it has whole routes, or
// resources of an earlier stream. The first request of a machine may say neither, but how it is.
func (c *Connection) noteFirst(ctx context.Context, m *message) error {
	if c.hasWholeRoutes(m) {
		if err := c.serveWholeRoutes(ctx); err != nil {
			return err
		}
	}
	if c.proxy.Returning || c.member == nil || !m.request.StatesResources() {
		return nil
	}
	return c.changeProxy(ctx, func(p *discovery.Proxy) { p.Returning = true })
}

// changeProxy changes what is known of the client.
func (c *Connection) changeProxy(ctx context.Context, change func(*discovery.Proxy)) error {
	proxy := *c.proxy
	change(&proxy)
	c.proxy = &proxy
	c.note.Identify(c.proxy)
	c.member.SetProxy(c.proxy)
	return c.advance(ctx)
}
