package rows

import (
	"cmp"
	"slices"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/host"
	"github.com/portolan-mesh/portolan/storage/pmap"
)

// Table holds the rows of all hosts. The zero Table is empty. Its maps are never modified, so
// copying a Table costs nothing.
type Table struct {
	// Services and Endpoints hold the merged rows by Key.
	Services  pmap.Map[*Service]
	Endpoints pmap.Map[*Endpoints]

	// The rows of each shard, by Key.
	services  pmap.Map[*parts[*discovery.Service]]
	endpoints pmap.Map[*parts[*discovery.Endpoint]]
}

// SetServices sets all services that a shard has under a host and namespace. Without services
// it removes the shard's endpoints too. The table owns the slice.
func (t *Table) SetServices(shard discovery.ShardKey, hostname host.Name, namespace string, services []*discovery.Service) {
	key := Key(hostname, namespace)
	t.services = withPart(t.services, key, shard, services)
	if len(services) == 0 {
		t.endpoints = withPart(t.endpoints, key, shard, nil)
		t.updateEndpoints(key, hostname, namespace)
	}
	t.updateService(key)
}

// SetEndpoints sets all endpoints that a shard has for a host and namespace. The table
// owns the slice.
func (t *Table) SetEndpoints(shard discovery.ShardKey, hostname host.Name, namespace string, endpoints []*discovery.Endpoint) {
	key := Key(hostname, namespace)
	t.endpoints = withPart(t.endpoints, key, shard, endpoints)
	t.updateEndpoints(key, hostname, namespace)
	t.updateService(key)
}

func (t *Table) updateService(key string) {
	services := t.services.Value(key)
	if services == nil {
		t.Services = t.Services.Delete(key)
		return
	}
	row := NewService(services.all(), t.endpoints.Value(key).all())
	if !row.Equal(t.Services.Value(key)) {
		t.Services = t.Services.Set(key, row)
	}
}

func (t *Table) updateEndpoints(key string, hostname host.Name, namespace string) {
	endpoints := t.endpoints.Value(key)
	if endpoints == nil {
		t.Endpoints = t.Endpoints.Delete(key)
		return
	}
	row := NewEndpoints(hostname, namespace, shardsOf(endpoints))
	if last := t.Endpoints.Value(key); !row.Equal(last) {
		row.Follow(last)
		t.Endpoints = t.Endpoints.Set(key, row)
	}
}

// parts holds the rows of the shards under one key, in the order of the shards, without empty
// ones. It is never modified.
type parts[T any] struct{ list []part[T] }

type part[T any] struct {
	shard  discovery.ShardKey
	values []T
}

func (p part[T]) compare(shard discovery.ShardKey) int {
	return cmp.Or(cmp.Compare(p.shard.Provider, shard.Provider), cmp.Compare(p.shard.Cluster, shard.Cluster))
}

// withPart replaces the values of a shard under a key.
func withPart[T any](m pmap.Map[*parts[T]], key string, shard discovery.ShardKey, values []T) pmap.Map[*parts[T]] {
	var list []part[T]
	if old := m.Value(key); old != nil {
		list = slices.Clone(old.list)
	}
	i, found := slices.BinarySearchFunc(list, shard, part[T].compare)
	switch {
	case found && len(values) == 0:
		list = slices.Delete(list, i, i+1)
	case found:
		list[i].values = values
	case len(values) == 0:
		return m
	default:
		list = slices.Insert(list, i, part[T]{shard, values})
	}
	if len(list) == 0 {
		return m.Delete(key)
	}
	return m.Set(key, &parts[T]{list})
}

// all returns the values of all shards together, none for nil parts. The caller must not
// modify the result.
func (p *parts[T]) all() []T {
	switch {
	case p == nil:
		return nil
	case len(p.list) == 1:
		return p.list[0].values
	}
	var out []T
	for _, part := range p.list {
		out = append(out, part.values...)
	}
	return out
}

func shardsOf(p *parts[*discovery.Endpoint]) []ShardEndpoints {
	out := make([]ShardEndpoints, len(p.list))
	for i, part := range p.list {
		out[i] = ShardEndpoints{Shard: part.shard, Endpoints: part.values}
	}
	return out
}
