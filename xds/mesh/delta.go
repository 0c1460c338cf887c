package mesh

import (
	"iter"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/discovery/rows"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/host"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// Tracked says whether Delta.Keys reports changed rows of the table.
func (t Table) Tracked() bool { return t >= firstTracked }

// RowKey names a row.
type RowKey struct {
	Table Table
	Key   string
}

// Delta is the difference of two contexts, row by row. Whole means that anything may
// differ: to is the first context, or the proxy's class or the mesh configuration
// changed. The tables are then compared with empty ones.
type Delta struct {
	Whole    bool
	from, to *PushContext
}

// Diff returns the rows in which two contexts differ. If from is nil, or the mesh
// configuration changed, these are all rows.
func Diff(from, to *PushContext) Delta {
	if from == nil || from.mesh != to.mesh {
		return Delta{Whole: true, from: &PushContext{}, to: to}
	}
	return Delta{from: from, to: to}
}

// Everything returns the difference from nothing to where d leads.
func (d Delta) Everything() Delta { return Diff(nil, d.to) }

// Hosts iterates over the changed hosts, in order, and then over the unchanged ones that may have begun or
// ceased to be aliases of these.
func (d Delta) Hosts() iter.Seq[pmap.Change[*HostRow]] {
	return func(yield func(pmap.Change[*HostRow]) bool) {
		for c := range hostRows.diff(d.from, d.to) {
			if !yield(c) {
				return
			}
		}
		for _, h := range aliasRows.followers(d.from, d.to) {
			row := d.to.Host(host.Name(h))
			if !yield(pmap.Change[*HostRow]{Key: h, Old: row, New: row, HasOld: true, HasNew: true}) {
				return
			}
		}
	}
}

// Endpoints iterates over the changed endpoint rows, in order.
func (d Delta) Endpoints() iter.Seq[pmap.Change[*EndpointRow]] {
	return pmap.Diff(d.from.inputs.Endpoints, d.to.inputs.Endpoints)
}

// Routes iterates over the changed routes, by RouteKey.
func (d Delta) Routes() iter.Seq[pmap.Change[*RouteRow]] { return routeRows.diff(d.from, d.to) }

// GatewayStreams iterates over the changed tcp and tls routes of gateways, by GatewayStreamKey.
func (d Delta) GatewayStreams() iter.Seq[pmap.Change[*RouteRow]] {
	return gatewayStreamRows.diff(d.from, d.to)
}

// Rules iterates over the changed rules, by host or pattern.
func (d Delta) Rules() iter.Seq[pmap.Change[*RuleRow]] { return ruleRows.diff(d.from, d.to) }

// Consents iterates over the present hosts for which those who may speak for them changed: other rules
// of a pattern may have effect for such a host, though no rule changed.
func (d Delta) Consents() iter.Seq[*HostRow] {
	return func(yield func(*HostRow) bool) {
		for c := range ownerRows.diff(d.from, d.to) {
			if row := hostRows.rowsOf(d.to).Value(c.Key); row != nil && !yield(row) {
				return
			}
		}
	}
}

// Destinations iterates over the hosts for which the VirtualServices that make them known
// to sidecars changed.
func (d Delta) Destinations() iter.Seq[pmap.Change[*ImportRow]] { return importRows.diff(d.from, d.to) }

// HostsMatching iterates over the present hosts that a pattern (or the one name) covers.
func (d Delta) HostsMatching(pattern string) iter.Seq[*HostRow] {
	return d.to.hostsMatching(host.Name(pattern))
}

// Keys returns the keys of all changed tracked rows, some maybe twice. For a changed row
// of a pattern it also has the hosts under the pattern, since another row may now apply
// to them. The caller must not modify the result.
func (d Delta) Keys() []RowKey {
	if rows, known := d.to.changedSince(d.from); known {
		return rows
	}
	return changedRows(d.from, d.to, firstTracked, nil)
}

// Rows is like Keys, for all rows that a View answers from, tracked or not.
func (d Delta) Rows() []RowKey { return changedRows(d.from, d.to, firstAsked, nil) }

// changedRows appends the keys of the rows that differ in table first and all later ones.
func changedRows(from, to *PushContext, first Table, keys []RowKey) []RowKey {
	for t := first; t < tableCount; t++ {
		keys = tables[t].changed(from, to, keys)
	}
	return keys
}

// Request describes the push from one context to the other. It is Full unless only
// endpoints changed. ConfigsUpdated has the objects that differ, except ServiceEntry,
// WorkloadEntry and WorkloadGroup. The first two show in their rows; the last concerns
// agents, and no proxy. Each changed service or endpoint row counts as (ServiceEntry, host,
// namespace).
func (d Delta) Request() *discovery.PushRequest {
	r := &discovery.PushRequest{Full: d.Whole, ConfigsUpdated: map[config.Key]struct{}{}}
	for c := range pmap.Diff(d.from.inputs.Configs.Configs(), d.to.inputs.Configs.Configs()) {
		object := c.New
		if object == nil {
			object = c.Old
		}
		switch object.Kind {
		case "ServiceEntry", "WorkloadEntry", "WorkloadGroup":
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

// serviceEntryKey is the key by which PushRequest names a service row.
func serviceEntryKey(key string) config.Key {
	h, namespace := rows.SplitKey(key)
	return config.Key{Kind: schema.ServiceEntry, Namespace: namespace, Name: string(h)}
}
