package mesh

import (
	"iter"
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/storage/host"
)

// streams has the VirtualServices of the mesh gateway that have tcp or tls routes, by
// host. A VirtualService without such routes is in no row, so that its changes touch no
// listener.
type streams struct{ tableOf[*RouteRow] }

var (
	streamRows = streams{tableOf[*RouteRow]{Streams}}
	// reversedStreamRows bring together the hosts that end alike.
	reversedStreamRows = tableOf[*RouteRow]{reversedStreams}
)

func (t streams) follow(from, to *PushContext) {
	for c := range virtualServiceRows.diff(from, to) {
		before, after := c.Old.streamHosts(), c.New.streamHosts()
		for _, h := range unionKeys(before, after) {
			row := t.of(to).Value(h).replace(c.Old, c.New, slices.Contains(after, h))
			t.put(to, h, row, row != nil)
			reversedStreamRows.put(to, reverse(h), row, row != nil)
		}
	}
}

// streamHosts are the hosts whose connections the VirtualService routes.
func (vs *VirtualService) streamHosts() []string {
	if vs == nil || len(vs.Spec.GetTcp()) == 0 && len(vs.Spec.GetTls()) == 0 || !slices.Contains(vs.Gateways, MeshGateway) {
		return nil
	}
	return vs.Spec.GetHosts()
}

// streamRoutes iterates over the destinations of its tcp and tls routes.
func (vs *VirtualService) streamRoutes() iter.Seq[[]*networking.RouteDestination] {
	return func(yield func([]*networking.RouteDestination) bool) {
		for _, r := range vs.Spec.GetTcp() {
			if !yield(r.GetRoute()) {
				return
			}
		}
		for _, r := range vs.Spec.GetTls() {
			if !yield(r.GetRoute()) {
				return
			}
		}
	}
}

// resolveStreams completes the names in its tcp and tls routes.
func (vs *VirtualService) resolveStreams(resolve func(string) string) {
	for route := range vs.streamRoutes() {
		for _, d := range route {
			if d.GetDestination() != nil {
				d.Destination.Host = strings.ToLower(resolve(d.Destination.Host))
			}
		}
	}
	for _, r := range vs.Spec.GetTcp() {
		for _, m := range r.GetMatch() {
			resolveGateways(m.GetGateways(), vs.Config.Namespace)
		}
	}
	for _, r := range vs.Spec.GetTls() {
		for _, m := range r.GetMatch() {
			resolveGateways(m.GetGateways(), vs.Config.Namespace)
			for i, name := range m.GetSniHosts() {
				m.SniHosts[i] = strings.ToLower(name)
			}
		}
	}
}

// changed adds the hosts that overlap with a changed one: services under a pattern, and
// patterns that cover a name, which may be the host of a service too.
func (t streams) changed(from, to *PushContext, keys []RowKey) []RowKey {
	for c := range t.diff(from, to) {
		h := host.Name(c.Key)
		keys = append(keys, RowKey{Streams, c.Key})
		for pattern := range h.Covers() {
			if pattern != h {
				keys = append(keys, RowKey{Streams, string(pattern)})
			}
		}
		if h.IsWildcard() {
			for row := range to.hostsMatching(h) {
				keys = append(keys, RowKey{Streams, string(row.Hostname)})
			}
		}
	}
	return keys
}

func (t streams) answer(v *View, key, listener string) any {
	return v.streams(host.Name(key), listener)
}

// routeList is a list of VirtualServices, comparable by ==. rest is a routeList, nil at
// the end.
type routeList struct {
	first *VirtualService
	rest  any
}

func (l routeList) all() []*VirtualService {
	var out []*VirtualService
	for some := l.first != nil; some; l, some = l.rest.(routeList) {
		out = append(out, l.first)
	}
	return out
}

// Streams are the VirtualServices that route the connections to the host of a service on
// an egress listener of a sidecar, in precedence: all with tcp or tls routes whose hosts
// overlap with the host, and that the listener imports.
func (v *View) Streams(listener EgressListener, h host.Name) []*VirtualService {
	return v.ask(Streams, string(h), v.listenerArgs(listener.Index)).(routeList).all()
}

func (v *View) streams(h host.Name, listener string) routeList {
	var found []*VirtualService
	add := func(row *RouteRow) {
		for _, vs := range row.all() {
			if vs.ExportTo.VisibleTo(v.scope.Namespace) && !slices.Contains(found, vs) &&
				v.anyListener(listener, func(l int) bool { return v.scope.importsVirtualService(l, vs) }) {
				found = append(found, vs)
			}
		}
	}
	all := streamRows.of(v.context)
	if all.Len() == 0 {
		return routeList{}
	}
	for name := range h.Covers() {
		add(all.Value(string(name)))
	}
	if suffix, wild := strings.CutPrefix(string(h), "*"); wild {
		for _, row := range reversedStreamRows.of(v.context).Prefix(reverse(suffix)) {
			add(row)
		}
	}
	slices.SortFunc(found, v.CompareVirtualServices)
	out := routeList{}
	for _, vs := range slices.Backward(found) {
		if out.first == nil {
			out = routeList{first: vs}
		} else {
			out = routeList{vs, out}
		}
	}
	return out
}
