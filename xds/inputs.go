package xds

import (
	"maps"
	"slices"
	"strings"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/host"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/xds/mesh"
)

// rows collects what the registries hand over during a task of the worker. It is
// used on the worker only.
type rows struct {
	services  map[string]map[discovery.ShardKey][]*discovery.Service
	endpoints map[string]map[discovery.ShardKey][]*discovery.Endpoint

	// The rows as they stand; read by commit when a task ends.
	serviceRows  pmap.Map[*mesh.ServiceRow]
	endpointRows pmap.Map[*mesh.EndpointRow]
}

func newRows() *rows {
	return &rows{
		services:  map[string]map[discovery.ShardKey][]*discovery.Service{},
		endpoints: map[string]map[discovery.ShardKey][]*discovery.Endpoint{},
	}
}

func (r *rows) setServices(shard discovery.ShardKey, hostname host.Name, namespace string, services []*discovery.Service) {
	key := mesh.ServiceKey(hostname, namespace)
	if setShard(r.services, key, shard, services); len(services) == 0 {
		setShard(r.endpoints, key, shard, nil)
		r.rebuildEndpoints(key, hostname, namespace)
	}
	r.rebuildService(key)
}

func (r *rows) setEndpoints(shard discovery.ShardKey, hostname host.Name, namespace string, endpoints []*discovery.Endpoint) {
	key := mesh.ServiceKey(hostname, namespace)
	setShard(r.endpoints, key, shard, endpoints)
	r.rebuildEndpoints(key, hostname, namespace)
	r.rebuildService(key)
}

// setShard replaces what a shard has under a key.
func setShard[T any](table map[string]map[discovery.ShardKey][]T, key string, shard discovery.ShardKey, values []T) {
	if len(values) == 0 {
		delete(table[key], shard)
		if len(table[key]) == 0 {
			delete(table, key)
		}
		return
	}
	if table[key] == nil {
		table[key] = map[discovery.ShardKey][]T{}
	}
	table[key][shard] = values
}

// inShardOrder puts the shards of a key together in the order of their keys.
func inShardOrder[T any](shards map[discovery.ShardKey][]T) []T {
	var out []T
	for _, k := range shardOrder(shards) {
		out = append(out, shards[k]...)
	}
	return out
}

func shardOrder[T any](shards map[discovery.ShardKey]T) []discovery.ShardKey {
	return slices.SortedFunc(maps.Keys(shards), func(a, b discovery.ShardKey) int {
		return strings.Compare(a.String(), b.String())
	})
}

// sizes says how many of what inShardOrder returns each shard has.
func sizes[T any](shards map[discovery.ShardKey][]T) []mesh.ShardSize {
	out := make([]mesh.ShardSize, 0, len(shards))
	for _, k := range shardOrder(shards) {
		out = append(out, mesh.ShardSize{Shard: k, Count: len(shards[k])})
	}
	return out
}

func (r *rows) rebuildService(key string) {
	services := inShardOrder(r.services[key])
	if len(services) == 0 {
		r.serviceRows = r.serviceRows.Delete(key)
		return
	}
	row := mesh.NewServiceRow(services, inShardOrder(r.endpoints[key]))
	if !row.Equal(r.serviceRows.Value(key)) {
		r.serviceRows = r.serviceRows.Set(key, row)
	}
}

func (r *rows) rebuildEndpoints(key string, hostname host.Name, namespace string) {
	endpoints := inShardOrder(r.endpoints[key])
	if len(endpoints) == 0 {
		r.endpointRows = r.endpointRows.Delete(key)
		return
	}
	row := &mesh.EndpointRow{Hostname: hostname, Namespace: namespace, Endpoints: endpoints, Shards: sizes(r.endpoints[key])}
	if last := r.endpointRows.Value(key); !row.Equal(last) {
		row.Follow(last)
		r.endpointRows = r.endpointRows.Set(key, row)
	}
}

var _ discovery.XDSUpdater = (*DiscoveryServer)(nil)

// SvcUpdate implements discovery.XDSUpdater.
func (s *DiscoveryServer) SvcUpdate(shard discovery.ShardKey, hostname host.Name, namespace string, services []*discovery.Service) {
	s.rows.setServices(shard, hostname, namespace, services)
	s.because(discovery.ReasonService)
}

// EDSUpdate implements discovery.XDSUpdater.
func (s *DiscoveryServer) EDSUpdate(shard discovery.ShardKey, hostname host.Name, namespace string, endpoints []*discovery.Endpoint) {
	s.EDSCacheUpdate(shard, hostname, namespace, endpoints)
	s.because(discovery.ReasonEndpoint)
}

// EDSCacheUpdate implements discovery.XDSUpdater.
func (s *DiscoveryServer) EDSCacheUpdate(shard discovery.ShardKey, hostname host.Name, namespace string, endpoints []*discovery.Endpoint) {
	s.rows.setEndpoints(shard, hostname, namespace, endpoints)
}

// ConfigUpdate implements discovery.XDSUpdater.
func (s *DiscoveryServer) ConfigUpdate(r *discovery.PushRequest) {
	for reason, n := range r.Reason {
		for range n {
			s.because(reason)
		}
	}
}

// ProxyUpdate implements discovery.XDSUpdater. The instance rows say what
// changed for the proxy; this is but a reason.
func (s *DiscoveryServer) ProxyUpdate(_, _ string) { s.because(discovery.ReasonProxy) }

// Commit makes one Inputs of all that a task of the worker changed, and wakes
// the pusher where something did. It is the last hook of the worker.
func (s *DiscoveryServer) Commit() {
	in := mesh.Inputs{
		Configs:  s.options.Configs.Handled(),
		Services: s.rows.serviceRows, Endpoints: s.rows.endpointRows, Mesh: s.options.Mesh,
	}
	last := s.inputs.Load()
	if last != nil && *last == in {
		return
	}
	if last == nil || last.Configs != in.Configs {
		s.because(discovery.ReasonConfig)
	}
	s.inputs.Store(&in)
	s.wake()
}
