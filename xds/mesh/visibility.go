package mesh

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/host"
	"github.com/portolan-mesh/portolan/storage/labels"
)

// A question about a host goes through one egress listener, or any. Where no
// Sidecar restricts the class both are the same question, so that classes share
// the answer.
const viaAny = "any"

// viaListener names the question about a host through one listener, and records
// what else its answer depends on.
func (v *View) viaListener(listener int, h host.Name) string {
	if !v.scope.restricted() {
		return viaAny
	}
	v.dependOnImports(h, strconv.Itoa(listener))
	return strconv.Itoa(listener)
}

func (v *View) anyListener(h host.Name) string {
	if v.scope.restricted() {
		v.dependOnImports(h, viaAny)
	}
	return viaAny
}

// dependOnImports records the VirtualServices through which a restricted scope
// may import a host.
func (v *View) dependOnImports(h host.Name, via string) { v.ask(Destinations, string(h), via) }

// service picks the service of a host that the class sees: one that an egress
// listener imports, of its own namespace first, then the oldest; where none is,
// one that an imported VirtualService routes to.
func (v *View) service(h host.Name, via string) *ServiceRow {
	row := v.context.hosts.hosts.Value(string(h))
	if row == nil {
		return nil
	}
	scope := v.scope
	if !scope.restricted() {
		return row.pick(scope, nil)
	}
	if s := row.pick(scope, func(r *ServiceRow) bool {
		return v.eachListener(via, func(l int) bool { return scope.importsService(l, h, r.Namespace) })
	}); s != nil {
		return s
	}
	if v.imported(v.context.imports.rows.Value(string(h)), via) {
		return row.pick(scope, nil)
	}
	return nil
}

// pick is the first service of a host that is exported to the scope's namespace
// and passes a test, nil for none; that namespace's own comes first.
func (r *HostRow) pick(scope SidecarScope, sees func(*ServiceRow) bool) *ServiceRow {
	var first *ServiceRow
	for _, s := range r.Services {
		if !s.Service().Attributes.ExportTo.VisibleTo(scope.Namespace) || sees != nil && !sees(s) {
			continue
		}
		if s.Namespace == scope.Namespace {
			return s
		}
		if first == nil {
			first = s
		}
	}
	return first
}

// eachListener says whether a test holds for the listener named by via, or for
// one of all.
func (v *View) eachListener(via string, test func(listener int) bool) bool {
	if !v.scope.restricted() {
		return true // each imports everything
	}
	if l, err := strconv.Atoi(via); err == nil {
		return test(l)
	}
	return slices.ContainsFunc(v.scope.Egress(), func(l EgressListener) bool { return test(l.Index) })
}

// visibleRoutes is a row of routes and how a class sees them, as a comparable
// value: a byte each, 0 for unseen, else the precedence.
type visibleRoutes struct {
	row  *RouteRow
	seen string
}

func (r visibleRoutes) list() []*VirtualService {
	if r.row == nil || strings.Count(r.seen, r.seen[:1]) == len(r.seen) {
		return r.row.all() // all in one place, the oldest first
	}
	var out []*VirtualService
	for p := byte(privateRoutes); p <= publicRoutes; p++ {
		for i, vs := range r.row.VirtualServices {
			if r.seen[i] == p {
				out = append(out, vs)
			}
		}
	}
	return out
}

// The precedence of VirtualServices, as a namespace sees them.
const (
	privateRoutes  = iota + 1 // of the namespace, and not public
	exportedRoutes            // of another namespace, which exports them to this one
	publicRoutes
)

// precedence is that of a VirtualService that the namespace sees. (Istio:
// VirtualServicesForGateway.)
func (vs *VirtualService) precedence(namespace string) byte {
	switch {
	case vs.ExportTo.Public():
		return publicRoutes
	case vs.Config.Namespace == namespace:
		return privateRoutes
	}
	return exportedRoutes
}

// CompareVirtualServices is the precedence of VirtualServices that the view has
// answered with: those private to the proxy's namespace, those that others
// export to it, public ones; the oldest first in each.
func (v *View) CompareVirtualServices(a, b *VirtualService) int {
	own := v.scope.Namespace
	return cmp.Or(cmp.Compare(a.precedence(own), b.precedence(own)), config.Compare(a.Config, b.Config))
}

func (r *RouteRow) all() []*VirtualService {
	if r == nil {
		return nil
	}
	return r.VirtualServices
}

// viaExactly marks the question about the VirtualServices of one name, not of
// those that cover it.
const viaExactly = "="

// route answers a question about the routes of a host: all that the class sees on
// a gateway (via is empty), or the one that applies on an egress listener of a
// sidecar.
func (v *View) route(key, via string) any {
	if via == "" {
		return v.visibleRoutes(v.context.routes.routes.Value(key))
	}
	listener, exactly := strings.CutPrefix(via, viaExactly)
	if exactly || v.context.routes.patterns == 0 {
		return v.firstRoute(v.context.routes.routes.Value(key), listener)
	}
	gateway, h := splitRouteKey(key)
	for name := range h.Covers() {
		if vs := v.firstRoute(v.context.routes.routes.Value(RouteKey(gateway, name)), listener); vs != nil {
			return vs
		}
	}
	return (*VirtualService)(nil)
}

// firstRoute is the VirtualService of a row that comes first of those that the
// class imports through a listener, nil for none.
func (v *View) firstRoute(row *RouteRow, listener string) *VirtualService {
	var first *VirtualService
	for _, vs := range row.all() {
		if !vs.ExportTo.VisibleTo(v.scope.Namespace) ||
			!v.eachListener(listener, func(l int) bool { return v.scope.importsVirtualService(l, vs) }) {
			continue
		}
		if first == nil || vs.precedence(v.scope.Namespace) < first.precedence(v.scope.Namespace) {
			first = vs
		}
	}
	return first
}

func (v *View) visibleRoutes(row *RouteRow) visibleRoutes {
	seen := make([]byte, len(row.all()))
	some := false
	for i, vs := range row.all() {
		if vs.ExportTo.VisibleTo(v.scope.Namespace) {
			seen[i], some = vs.precedence(v.scope.Namespace), true
		}
	}
	if !some {
		return visibleRoutes{}
	}
	return visibleRoutes{row, string(seen)}
}

// formatLabels writes a selector as a question; parseLabels reads it back.
// Neither "," nor "=" can stand in a label.
func formatLabels(l labels.Instance) string { return l.String() }

func parseLabels(s string) labels.Instance {
	out := labels.Instance{}
	for _, part := range splitComma(s) {
		k, value, _ := strings.Cut(part, "=")
		out[k] = value
	}
	return out
}

func joinComma(s []string) string { return strings.Join(s, ",") }

func splitComma(s string) []string {
	if s == "" {
		return nil
	}
	return strings.Split(s, ",")
}
