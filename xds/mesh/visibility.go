package mesh

import (
	"strconv"
	"strings"

	"github.com/portolan-mesh/portolan/storage/host"
	"github.com/portolan-mesh/portolan/xds/mesh/routing"
	"github.com/portolan-mesh/portolan/xds/mesh/sidecar"
)

// A query for a host goes through one egress listener, or through any. If no Sidecar
// restricts the class both are the same query, so that classes share the answer.
const viaAny = "any"

// listenerArgs returns the arguments of a query through one listener.
func (v *View) listenerArgs(listener int) string {
	if !v.scope.Restricted() {
		return viaAny
	}
	return strconv.Itoa(listener)
}

// ofHost queries what a host is through a listener, or any, as seen does, and records everything
// that the answer depends on.
func (v *View) ofHost(h host.Name, listener string) any {
	if v.scope.Restricted() && listener == viaAny {
		v.ask(Destinations, string(h), listener)
	}
	return v.ask(Hosts, string(h), listener)
}

// seen returns what a host is to the class: a *ServiceRow, nil for none, or an Alias.
func (v *View) seen(h host.Name, listener string) any {
	s := v.picked(h, listener)
	if s == nil || s.ExternalName() == "" {
		return s
	}
	if of, alias := v.push.AliasOf(s, v.scope.Namespace); alias {
		return Alias{Service: s, Of: of}
	}
	return s
}

// service returns the service of a host that the class sees, nil if it sees none or the host is an alias.
func (v *View) service(h host.Name, listener string) *ServiceRow {
	s, _ := v.seen(h, listener).(*ServiceRow)
	return s
}

// picked returns the service of a host that the class sees, aliases too. First come services that an
// egress listener imports: of the class's own namespace, then of a namespace that an
// entry names, then the oldest. Through any listener, next come services to which an
// imported VirtualService routes, and the Sidecar's egress proxy. Routes lead to these,
// but no listener carries them.
func (v *View) picked(h host.Name, listener string) *ServiceRow {
	row := hostRows.rowsOf(v.push).Value(string(h))
	if row == nil {
		return nil
	}
	scope := v.scope
	if !scope.Restricted() {
		return row.Pick(scope, nil)
	}
	if s := row.Pick(scope, func(r *ServiceRow) sidecar.Rank { return v.importRank(listener, h, r.Namespace) }); s != nil {
		return s
	}
	if listener == viaAny && (scope.Sidecar.EgressProxy.Is(h) || v.imported(importRows.rowsOf(v.push).Value(string(h)))) {
		return row.Pick(scope, nil)
	}
	return nil
}

// importRank returns the highest rank with which the listener (or any, for viaAny)
// imports a service.
func (v *View) importRank(listener string, h host.Name, namespace string) sidecar.Rank {
	best := sidecar.NotImported
	v.anyListener(listener, func(l int) bool {
		best = max(best, v.scope.ImportsService(l, h, namespace))
		return best == sidecar.OfNamespace
	})
	return best
}

// anyListener says whether the test holds for the listener with that number (or for any,
// for viaAny).
func (v *View) anyListener(listener string, test func(listener int) bool) bool {
	if !v.scope.Restricted() {
		return true // each imports everything
	}
	if listener != viaAny {
		l, err := strconv.Atoi(listener)
		return err == nil && test(l)
	}
	for l := range v.scope.Sidecar.Spec.GetEgress() {
		if test(l) {
			return true
		}
	}
	return false
}

// CompareVirtualServices orders the VirtualServices of the view by precedence: those
// private to the proxy's namespace, those that others export to it, public ones; the
// oldest first in each.
func (v *View) CompareVirtualServices(a, b *routing.VirtualService) int {
	return routing.Compare(a, b, v.scope.Namespace)
}

// viaExactly marks a query for the VirtualServices of exactly one name, without patterns
// that cover it.
const viaExactly = "="

// route answers a query for the routes of a host. Empty args ask for all that the class
// sees on a gateway; otherwise for the one that applies on an egress listener of a
// sidecar.
func (v *View) route(key, args string) any {
	all := routeRows.rowsOf(v.push)
	if args == "" {
		return all.Value(key).SeenFrom(v.scope.Namespace)
	}
	listener, exactly := strings.CutPrefix(args, viaExactly)
	if exactly || routePatternRows.rowsOf(v.push).Len() == 0 {
		return v.firstRoute(all.Value(key), listener)
	}
	gateway, h := routing.SplitRouteKey(key)
	for name := range h.Covers() {
		row := all.Value(routing.RouteKey(gateway, name))
		vs := row.First(v.scope.Namespace, func(vs *routing.VirtualService) bool {
			return v.push.permitsPattern(h, vs.Config, name) && v.importsVirtualService(listener, vs)
		})
		if vs != nil {
			return vs
		}
	}
	return (*routing.VirtualService)(nil)
}

// firstRoute returns the first VirtualService of a row, in precedence, that the class
// imports through a listener; nil for none.
func (v *View) firstRoute(row *RouteRow, listener string) *routing.VirtualService {
	return row.First(v.scope.Namespace, func(vs *routing.VirtualService) bool { return v.importsVirtualService(listener, vs) })
}

// importsVirtualService says whether the listener (or any, for viaAny) imports a
// VirtualService.
func (v *View) importsVirtualService(listener string, vs *routing.VirtualService) bool {
	return v.anyListener(listener, func(l int) bool { return v.scope.ImportsRoutes(l, vs.Config.Namespace, vs.Hosts) })
}
