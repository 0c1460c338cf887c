package mesh

import (
	"iter"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/host"
	"github.com/portolan-mesh/portolan/storage/pmap"
)

// Table names a table of rows.
type Table uint8

// The tables. Self is what a class, or a workload, knows of itself; its rows never
// stand in a Delta, nor do those of the tables that only a workload's own resources
// read.
const (
	Self         Table = iota
	Instances          // the endpoints at an address
	Services           // ServiceRow by ServiceKey
	Gateways           // Gateway by path; a change of one is another delta, Whole
	MeshConfig         // likewise
	Hosts              // HostRow by host
	Addresses          // the hosts that have an address or were given it
	Covered            // the hosts that speak HTTP on a port and that a pattern covers, by CoverKey
	Claims             // the services that claim a port, by ClaimKey
	Endpoints          // EndpointRow by ServiceKey
	Routes             // RouteRow by RouteKey
	RouteHosts         // the hosts of a gateway
	Destinations       // ImportRow by host
	Rules              // RuleRow by host or pattern
)

// Tracked says whether changes of the table's rows stand in a Delta.
func (t Table) Tracked() bool { return t > MeshConfig }

// RowKey names a row.
type RowKey struct {
	Table Table
	Key   string
}

// Delta is the difference of two contexts, by rows. Whole says that everything
// has to be looked at: it is the first context, or the class of the proxy or the
// mesh configuration changed; the tables then differ from empty ones.
type Delta struct {
	Whole    bool
	from, to *PushContext
}

// Diff tells the rows in which two contexts differ. From nil, or over a change
// of the mesh configuration, that is all rows there are.
func Diff(from, to *PushContext) Delta {
	if from == nil || from.mesh != to.mesh {
		return Delta{Whole: true, from: &PushContext{}, to: to}
	}
	return Delta{from: from, to: to}
}

// Hosts iterates over the changed hosts, in order.
func (d Delta) Hosts() iter.Seq[pmap.Change[*HostRow]] {
	return pmap.Diff(d.from.hosts.hosts, d.to.hosts.hosts)
}

// Endpoints iterates over the changed endpoint rows, in order.
func (d Delta) Endpoints() iter.Seq[pmap.Change[*EndpointRow]] {
	return pmap.Diff(d.from.inputs.Endpoints, d.to.inputs.Endpoints)
}

// Routes iterates over the changed routes, by RouteKey.
func (d Delta) Routes() iter.Seq[pmap.Change[*RouteRow]] {
	return pmap.Diff(d.from.routes.routes, d.to.routes.routes)
}

// Rules iterates over the changed rules, by host or pattern.
func (d Delta) Rules() iter.Seq[pmap.Change[*RuleRow]] {
	return pmap.Diff(d.from.rules.rules, d.to.rules.rules)
}

// HostsMatching iterates over the hosts that are there now and that a pattern
// (or the one name) covers.
func (d Delta) HostsMatching(pattern string) iter.Seq[*HostRow] {
	return d.to.hosts.matching(host.Name(pattern))
}

// Keys iterates over the keys of all changed rows that are tracked. Where a row of
// a pattern changed, those of the hosts that it covers count, too: what applies to
// them may be another.
func (d Delta) Keys() iter.Seq[RowKey] {
	return func(yield func(RowKey) bool) {
		_ = changedKeys(Hosts, d.from.hosts.hosts, d.to.hosts.hosts, yield) &&
			changedKeys(Addresses, d.from.hosts.groups.addresses, d.to.hosts.groups.addresses, yield) &&
			changedKeys(Covered, d.from.hosts.groups.covered, d.to.hosts.groups.covered, yield) &&
			changedKeys(Claims, d.from.hosts.claims.rows, d.to.hosts.claims.rows, yield) &&
			changedKeys(Endpoints, d.from.inputs.Endpoints, d.to.inputs.Endpoints, yield) &&
			d.routeKeys(yield) &&
			changedKeys(RouteHosts, d.from.routes.routeHosts, d.to.routes.routeHosts, yield) &&
			changedKeys(Destinations, d.from.imports.rows, d.to.imports.rows, yield) &&
			d.ruleKeys(yield)
	}
}

func (d Delta) routeKeys(yield func(RowKey) bool) bool {
	for c := range d.Routes() {
		if !yield(RowKey{Routes, c.Key}) {
			return false
		}
		gateway, h := splitRouteKey(c.Key)
		if gateway != MeshGateway || !h.IsWildcard() {
			continue
		}
		for row := range d.to.hosts.matching(h) {
			if !yield(RowKey{Routes, RouteKey(MeshGateway, row.Hostname)}) {
				return false
			}
		}
	}
	return true
}

func (d Delta) ruleKeys(yield func(RowKey) bool) bool {
	for c := range d.Rules() {
		for row := range d.to.hosts.matching(host.Name(c.Key)) {
			if !yield(RowKey{Rules, string(row.Hostname)}) {
				return false
			}
		}
	}
	return true
}

func changedKeys[V comparable](table Table, from, to pmap.Map[V], yield func(RowKey) bool) bool {
	for c := range pmap.Diff(from, to) {
		if !yield(RowKey{table, c.Key}) {
			return false
		}
	}
	return true
}

// Request derives what a push from one context to the other is about: Full
// unless nothing but endpoints changed; ConfigsUpdated the objects that differ,
// those apart which are seen by their rows (ServiceEntry, WorkloadEntry) or push
// nothing (WorkloadGroup), and (ServiceEntry, host, namespace) for every changed
// service or endpoint row.
func (d Delta) Request() *discovery.PushRequest {
	r := &discovery.PushRequest{Full: d.Whole, ConfigsUpdated: map[config.Key]struct{}{}}
	for c := range pmap.Diff(d.from.inputs.Configs.Configs(), d.to.inputs.Configs.Configs()) {
		object := c.New
		if object == nil {
			object = c.Old
		}
		switch object.Kind {
		case kindServiceEntry, kindWorkloadEntry, kindWorkloadGroup:
			continue
		}
		r.Full = true
		r.ConfigsUpdated[object.Key()] = struct{}{}
	}
	for c := range pmap.Diff(d.from.inputs.Services, d.to.inputs.Services) {
		r.Full = true
		r.ConfigsUpdated[serviceEntryKey(c.Key)] = struct{}{}
	}
	for c := range d.Endpoints() {
		r.ConfigsUpdated[serviceEntryKey(c.Key)] = struct{}{}
	}
	return r
}

// serviceEntryKey is the dependency key of a service row.
func serviceEntryKey(key string) config.Key {
	h, namespace := splitServiceKey(key)
	return serviceEntry(namespace, string(h))
}

func serviceEntry(namespace, name string) config.Key {
	kind := config.GroupVersionKind{Group: networkingGroup, Version: "v1", Kind: kindServiceEntry}
	return config.Key{Kind: kind, Namespace: namespace, Name: name}
}
