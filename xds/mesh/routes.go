package mesh

import (
	"slices"

	"github.com/portolan-mesh/portolan/storage/host"
	"github.com/portolan-mesh/portolan/xds/mesh/routing"
)

// MeshGateway is the gateway name that stands for all sidecars.
const MeshGateway = routing.MeshGateway

// RouteRow holds the VirtualServices that name a host on a gateway.
type RouteRow = routing.Row

// routes holds the VirtualServices with http routes, by gateway and host.
type routes struct{ tableOf[*RouteRow] }

var (
	routeRows        = routes{tableOf[*RouteRow]{Routes}}
	routePatternRows = tableOf[bool]{routePatterns}
)

func (t routes) follow(from, to *PushContext) {
	for c := range virtualServiceRows.diff(from, to) {
		keys := c.New.RouteKeys()
		slices.Sort(keys)
		for _, key := range unionKeys(c.Old.RouteKeys(), keys) {
			_, belongs := slices.BinarySearch(keys, key)
			row := t.rowsOf(to).Value(key).Replace(c.Old, c.New, belongs)
			t.put(to, key, row, row != nil)
			if gateway, h := routing.SplitRouteKey(key); gateway == MeshGateway && h.IsWildcard() {
				routePatternRows.put(to, key, true, row != nil)
			}
		}
	}
}

// changed also adds the hosts that a changed pattern of the mesh gateway covers, and those for
// which patterns may have begun or ceased to count.
func (t routes) changed(from, to *PushContext, keys []RowKey) []RowKey {
	for c := range t.diff(from, to) {
		keys = append(keys, RowKey{Routes, c.Key})
		if gateway, h := routing.SplitRouteKey(c.Key); gateway == MeshGateway && h.IsWildcard() {
			for row := range to.hostsMatching(h) {
				keys = append(keys, RowKey{Routes, routing.RouteKey(MeshGateway, row.Hostname)})
			}
		}
	}
	for c := range ownerRows.diff(from, to) {
		keys = append(keys, RowKey{Routes, routing.RouteKey(MeshGateway, host.Name(c.Key))})
	}
	return keys
}

func (t routes) answer(v *View, key, args string) any { return v.route(key, args) }

func unionKeys(a, b []string) []string {
	out := slices.Concat(a, b)
	slices.Sort(out)
	return slices.Compact(out)
}
