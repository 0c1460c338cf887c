package discovery

import (
	"slices"

	"github.com/portolan-mesh/portolan/cache"
)

// Change is the difference between a row and the row that it replaced.
type Change struct {
	Before, After Row
	// Services and Endpoints say which of the two differ.
	Services, Endpoints bool
}

// Publish replaces a row of the index, and passes the difference to the updater: services with
// SvcUpdate and their endpoints with EDSCacheUpdate, endpoints alone with EDSUpdate, and
// nothing if nothing differs. If services differ, the caller must count the reason with
// ConfigUpdate. Call Publish only on the worker. The index owns the slices of the row
// afterwards.
func (x *Index) Publish(updater XDSUpdater, shard ShardKey, row Row) Change {
	slices.SortFunc(row.Services, CompareServices)
	if len(row.Services) == 0 {
		row.Endpoints = nil
	}
	before := x.Row(row.Hostname, row.Namespace)
	change := Change{
		Before: before, After: row,
		Services:  !slices.EqualFunc(before.Services, row.Services, (*Service).Equal),
		Endpoints: !slices.EqualFunc(before.Endpoints, row.Endpoints, (*Endpoint).Equal),
	}
	if !change.Services && !change.Endpoints {
		return change
	}
	x.set(row)
	if change.Services {
		updater.SvcUpdate(shard, row.Hostname, row.Namespace, slices.Clone(row.Services))
	}
	switch {
	case !change.Endpoints, len(row.Services) == 0:
	case change.Services:
		updater.EDSCacheUpdate(shard, row.Hostname, row.Namespace, slices.Clone(row.Endpoints))
	default:
		updater.EDSUpdate(shard, row.Hostname, row.Namespace, slices.Clone(row.Endpoints))
	}
	return change
}

// EachService calls f for every service that differs: first the deleted ones, then the
// updated, then the added. A service counts as the same while its defining object and its
// address stay.
func (c Change) EachService(f ServiceHandler) {
	if !c.Services {
		return
	}
	type identity struct{ name, address string }
	id := func(s *Service) identity { return identity{s.Attributes.Name, s.Address} }
	before, after := map[identity]*Service{}, map[identity]*Service{}
	for _, s := range c.Before.Services {
		before[id(s)] = s
	}
	for _, s := range c.After.Services {
		after[id(s)] = s
	}
	for _, s := range c.Before.Services {
		if after[id(s)] == nil {
			f(s, nil, cache.EventDelete)
		}
	}
	for _, s := range c.After.Services {
		if old := before[id(s)]; old != nil && !old.Equal(s) {
			f(old, s, cache.EventUpdate)
		}
	}
	for _, s := range c.After.Services {
		if before[id(s)] == nil {
			f(nil, s, cache.EventAdd)
		}
	}
}
