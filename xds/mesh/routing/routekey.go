package routing

import (
	"strings"

	"github.com/portolan-mesh/portolan/storage/host"
)

// RouteKey is the key of a host of a gateway in the table of routes.
func RouteKey(gateway string, h host.Name) string { return gateway + "|" + string(h) }

// SplitRouteKey is the inverse of RouteKey.
func SplitRouteKey(key string) (gateway string, h host.Name) {
	g, name, _ := strings.Cut(key, "|")
	return g, host.Name(name)
}

// RouteKeys returns the keys of a VirtualService with http routes; none for others, and
// for nil.
func (vs *VirtualService) RouteKeys() []string {
	if vs == nil || len(vs.Spec.GetHttp()) == 0 {
		return nil
	}
	var out []string
	for _, g := range vs.Gateways {
		for _, h := range vs.InEffect() {
			out = append(out, RouteKey(g, h))
		}
	}
	return out
}
