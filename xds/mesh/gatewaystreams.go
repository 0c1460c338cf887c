package mesh

import (
	"iter"
	"slices"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/xds/mesh/routing"
)

// gatewayStreams holds the VirtualServices with tcp or tls routes of gateways, by
// routing.GatewayStreamKey. A route whose matches name a port is only in the row of that
// port, so listeners of other ports do not depend on it.
type gatewayStreams struct{ tableOf[*RouteRow] }

var gatewayStreamRows = gatewayStreams{tableOf[*RouteRow]{GatewayStreams}}

func (t gatewayStreams) follow(from, to *PushContext) {
	for c := range virtualServiceRows.diff(from, to) {
		before, after := c.Old.GatewayStreamKeys(), c.New.GatewayStreamKeys()
		for _, key := range unionKeys(before, after) {
			row := t.rowsOf(to).Value(key).Replace(c.Old, c.New, slices.Contains(after, key))
			t.put(to, key, row, row != nil)
		}
	}
}

func (t gatewayStreams) answer(v *View, key, _ string) any {
	return t.rowsOf(v.push).Value(key).SeenFrom(v.scope.Namespace)
}

// GatewayStreams returns the VirtualServices that may have a tcp or tls route for a
// server, in precedence.
func (v *View) GatewayStreams(s *routing.Server) []*routing.VirtualService {
	var out []*routing.VirtualService
	for _, port := range []int{s.Port(), 0} {
		key := routing.GatewayStreamKey(s.Gateway.Name(), port)
		for _, vs := range v.ask(GatewayStreams, key, "").(routing.Visible).List() {
			if !slices.Contains(out, vs) {
				out = append(out, vs)
			}
		}
	}
	slices.SortFunc(out, v.CompareVirtualServices)
	return out
}

// GatewayTCPRoute returns the tcp route that gets all connections of a server. It is the
// first matching route of the first VirtualService that has one; vs is nil if there is
// none. (Istio: buildGatewayNetworkFiltersFromTCPRoutes.)
func (v *View) GatewayTCPRoute(s *routing.Server) (vs *routing.VirtualService, route int) {
	for _, vs := range v.GatewayStreams(s) {
		i := slices.IndexFunc(vs.Spec.GetTcp(), func(r *networking.TCPRoute) bool { return s.UsesTCPRoute(vs, r) })
		if i >= 0 {
			return vs, i
		}
	}
	return nil, 0
}

// GatewayNames iterates over the matches of tls routes that are for a server. Where two
// have a name in common, the earlier gets it. (Istio:
// buildGatewayNetworkFiltersFromTLSRoutes.)
func (v *View) GatewayNames(s *routing.Server) iter.Seq[routing.NameMatch] {
	return func(yield func(routing.NameMatch) bool) {
		for _, vs := range v.GatewayStreams(s) {
			for m := range s.NameMatches(vs) {
				if !yield(m) {
					return
				}
			}
		}
	}
}
