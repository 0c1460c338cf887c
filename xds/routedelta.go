package xds

import (
	"context"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/portolan-mesh/portolan/xds/generate"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// firstRouteDelta is the oldest version of Envoy that is known to take virtual
// hosts by delta as they are served here: 1.40.
var firstRouteDelta = [2]uint32{1, 40}

// takesRouteDelta says whether the client takes virtual hosts as resources of
// their own: an Envoy of a version that is known to, over one aggregated stream in
// delta, since a route configuration tells it to look for them there. Whoever else
// gets them within their route configurations.
func (c *Connection) takesRouteDelta(node *corev3.Node) bool {
	wire, delta := c.wire.(deltaWire)
	if !delta || wire.only != "" || c.server.options.WholeRoutes || node.GetUserAgentName() != "envoy" {
		return false
	}
	v := node.GetUserAgentBuildVersion().GetVersion()
	if v.GetMajorNumber() != firstRouteDelta[0] {
		return v.GetMajorNumber() > firstRouteDelta[0]
	}
	return v.GetMinorNumber() >= firstRouteDelta[1]
}

// holdsWhole says whether the first request for a type that is composed shows that
// the client, which would take the parts one by one, holds whole resources, of a
// server that did not send them so. It would be without parts from the moment when it
// takes their frame until it has the first of them.
func (c *Connection) holdsWhole(m *message) bool {
	t, _ := c.server.typ(m.typeURL)
	if _, composed := t.Generator.(generate.Composer); !composed || !c.proxy.RouteDelta {
		return false
	}
	served := c.world.resources(m.typeURL)
	for _, has := range m.request.Initial {
		if _, ok := served.Get(has.Name); ok && !resource.IsApart(has.Version) && !isEmpty(t.Generator, has.Name, has.Version) {
			return true
		}
	}
	return false
}

// isEmpty says whether a version is that of the answer to an unknown name.
func isEmpty(g generate.Generator, name, version string) bool {
	e, ok := g.(generate.Emptier)
	if !ok {
		return false
	}
	empty, err := e.Empty(name)
	return err == nil && empty != nil && empty.Version == version
}

// keepWhole serves the client whole resources on this stream: one that holds them
// goes on with them until it starts anew.
func (c *Connection) keepWhole(ctx context.Context) error {
	proxy := *c.proxy
	proxy.RouteDelta = false
	c.proxy = &proxy
	c.report.of(c.proxy)
	c.world.become(c.proxy)
	for _, t := range c.server.options.Types {
		if t.Scoped {
			c.flow.Forgo(t.Generator.TypeURL())
		}
	}
	return c.advance(ctx)
}
