package mesh

import (
	"slices"
	"strings"

	"github.com/portolan-mesh/portolan/storage/host"
	"github.com/portolan-mesh/portolan/xds/mesh/routing"
)

// streams holds the mesh gateway's VirtualServices that have tcp or tls routes, by host.
// A VirtualService without such routes is in no row, so its changes touch no listener.
type streams struct{ tableOf[*RouteRow] }

var (
	streamRows = streams{tableOf[*RouteRow]{Streams}}
	// reversedStreamRows has the same rows by reversed host, so hosts with a common
	// suffix are adjacent.
	reversedStreamRows = tableOf[*RouteRow]{reversedStreams}
)

func (t streams) follow(from, to *PushContext) {
	for c := range virtualServiceRows.diff(from, to) {
		before, after := c.Old.StreamHosts(), c.New.StreamHosts()
		for _, h := range unionKeys(before, after) {
			row := t.rowsOf(to).Value(h).Replace(c.Old, c.New, slices.Contains(after, h))
			t.put(to, h, row, row != nil)
			reversedStreamRows.put(to, reverse(h), row, row != nil)
		}
	}
}

// changed also adds the hosts that overlap with a changed one: services under a pattern,
// and the patterns that cover a name, since a service may have a pattern as its host. It adds
// the hosts for which patterns may have begun or ceased to count.
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
	for c := range ownerRows.diff(from, to) {
		keys = append(keys, RowKey{Streams, c.Key})
	}
	return keys
}

func (t streams) answer(v *View, key, listener string) any {
	return v.streams(host.Name(key), listener)
}

// Streams returns the VirtualServices that route connections to the host of a service on
// an egress listener of a sidecar, in precedence. These are all with tcp or tls routes
// whose hosts overlap with the host and that the listener imports.
func (v *View) Streams(listener EgressListener, h host.Name) []*routing.VirtualService {
	return v.ask(Streams, string(h), v.listenerArgs(listener.Index)).(routing.List).All()
}

func (v *View) streams(h host.Name, listener string) routing.List {
	var found []*routing.VirtualService
	add := func(row *RouteRow, name host.Name) {
		for _, vs := range row.All() {
			if v.push.permitsPattern(h, vs.Config, name) && vs.ExportTo.VisibleTo(v.scope.Namespace) && !slices.Contains(found, vs) && v.importsVirtualService(listener, vs) {
				found = append(found, vs)
			}
		}
	}
	all := streamRows.rowsOf(v.push)
	if all.Len() == 0 {
		return routing.List{}
	}
	for name := range h.Covers() {
		add(all.Value(string(name)), name)
	}
	if suffix, wild := strings.CutPrefix(string(h), "*"); wild {
		for _, row := range reversedStreamRows.rowsOf(v.push).Prefix(reverse(suffix)) {
			add(row, h)
		}
	}
	slices.SortFunc(found, v.CompareVirtualServices)
	return routing.ListOf(found)
}
