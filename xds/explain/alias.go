package explain

import (
	"fmt"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/host"
	"github.com/portolan-mesh/portolan/xds/mesh"
)

// lostAlias says why a host, which is an alias, leads the proxy to no service; empty for any other host.
func lostAlias(v *mesh.View, h host.Name) string {
	alias, ok := v.Alias(h)
	switch {
	case !ok || v.Service(alias.Of) != nil:
		return ""
	case alias.Of == "":
		return fmt.Sprintf("%s is an alias of itself: mend externalName of its Service", h)
	}
	return fmt.Sprintf("%s is an alias of %s, which the Sidecar of the proxy leaves out", h, alias.Of)
}

// lostAlias is like the function, of the host that the client calls. A gateway looks for no service of it.
func (e *explainer) lostAlias() string {
	if e.proxy.Type == discovery.Router {
		return ""
	}
	for _, h := range e.view().HostsFor(e.host) {
		if why := lostAlias(e.view(), h); why != "" || e.view().Service(h) != nil {
			return why
		}
	}
	return ""
}

// called returns the host of the service that clients call by the host of the request.
func (e *explainer) called() string {
	if alias, ok := e.view().Alias(host.Name(e.host)); ok && alias.Of != "" {
		return string(alias.Of)
	}
	return e.host
}
