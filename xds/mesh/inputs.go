package mesh

import (
	"iter"
	"slices"
	"strings"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/host"
	"github.com/portolan-mesh/portolan/storage/pmap"
)

// Inputs is everything that generated configuration depends on, as of one
// commit. It is never modified. The zero Inputs is an empty mesh.
type Inputs struct {
	// Configs are the configuration objects that all handlers have seen.
	Configs *cache.Snapshot
	// Services and Endpoints are the rows of the registries by ServiceKey.
	Services  pmap.Map[*ServiceRow]
	Endpoints pmap.Map[*EndpointRow]
	// Mesh is the mesh configuration; nil stands for DefaultConfig.
	Mesh *Config
}

// ServiceKey is the key of a service's rows: "host/namespace".
func ServiceKey(hostname host.Name, namespace string) string {
	return string(hostname) + "/" + namespace
}

// ServiceRow is a service of one name in one namespace: what all registries
// say of it that can shape a cluster, a listener or a route. It is replaced
// only when its content differs.
type ServiceRow struct {
	Hostname  host.Name
	Namespace string
	// Services are those of all registries and addresses; the first answers,
	// listeners use all. There is at least one.
	Services []*discovery.Service
	// Accounts are the identities that may serve it, sorted.
	Accounts []string
	// DNSEndpoints are the endpoints where the proxy resolves them itself.
	DNSEndpoints []*discovery.Endpoint
}

// Service is the one that answers for the row.
func (r *ServiceRow) Service() *discovery.Service { return r.Services[0] }

// NewServiceRow puts together the services of one key and the endpoints of that
// key. Kubernetes services come first, then the oldest.
func NewServiceRow(services []*discovery.Service, endpoints []*discovery.Endpoint) *ServiceRow {
	services = slices.Clone(services)
	slices.SortStableFunc(services, func(a, b *discovery.Service) int {
		ka, kb := a.Attributes.Provider == discovery.Kubernetes, b.Attributes.Provider == discovery.Kubernetes
		switch {
		case ka && !kb:
			return -1
		case kb && !ka:
			return 1
		}
		return discovery.CompareServices(a, b)
	})
	row := &ServiceRow{
		Hostname: services[0].Hostname, Namespace: services[0].Attributes.Namespace, Services: services,
	}
	for _, s := range services {
		row.Accounts = append(row.Accounts, s.ServiceAccounts...)
	}
	for _, e := range endpoints {
		if e.ServiceAccount != "" {
			row.Accounts = append(row.Accounts, e.ServiceAccount)
		}
	}
	slices.Sort(row.Accounts)
	row.Accounts = slices.Compact(row.Accounts)
	if row.Service().Resolution.IsDNS() {
		row.DNSEndpoints = endpoints
	}
	return row
}

// Equal says whether two rows have the same content.
func (r *ServiceRow) Equal(o *ServiceRow) bool {
	if r == nil || o == nil {
		return r == o
	}
	return r.Hostname == o.Hostname && r.Namespace == o.Namespace &&
		slices.EqualFunc(r.Services, o.Services, (*discovery.Service).Equal) &&
		slices.Equal(r.Accounts, o.Accounts) &&
		slices.EqualFunc(r.DNSEndpoints, o.DNSEndpoints, (*discovery.Endpoint).Equal)
}

// EndpointRow is all endpoints of a service, of all registries. It is replaced
// only when its content differs.
type EndpointRow struct {
	Hostname  host.Name
	Namespace string
	// Endpoints are in the order of their shards, within a shard as the registry
	// gave them.
	Endpoints []*discovery.Endpoint
	// Shards say which of them are whose: the first Count are of the first shard.
	Shards []ShardSize

	localities []*Locality // see Localities
}

// ShardSize is how many endpoints of a row a shard has.
type ShardSize struct {
	Shard discovery.ShardKey
	Count int
}

// ByShard iterates over the endpoints and the shards that they are of.
func (r *EndpointRow) ByShard() iter.Seq2[discovery.ShardKey, *discovery.Endpoint] {
	return func(yield func(discovery.ShardKey, *discovery.Endpoint) bool) {
		if r == nil {
			return
		}
		rest := r.Endpoints
		for _, s := range r.Shards {
			for _, e := range rest[:s.Count] {
				if !yield(s.Shard, e) {
					return
				}
			}
			rest = rest[s.Count:]
		}
	}
}

// Equal says whether two rows have the same content.
func (r *EndpointRow) Equal(o *EndpointRow) bool {
	if r == nil || o == nil {
		return r == o
	}
	return r.Hostname == o.Hostname && r.Namespace == o.Namespace && slices.Equal(r.Shards, o.Shards) &&
		slices.EqualFunc(r.Endpoints, o.Endpoints, (*discovery.Endpoint).Equal)
}

// splitServiceKey is the inverse of ServiceKey.
func splitServiceKey(key string) (host.Name, string) {
	h, ns, _ := strings.Cut(key, "/")
	return host.Name(h), ns
}

// compareServiceRows is the order of services of one host over namespaces.
func compareServiceRows(a, b *ServiceRow) int {
	if c := discovery.CompareServices(a.Service(), b.Service()); c != 0 {
		return c
	}
	return strings.Compare(a.Namespace, b.Namespace)
}
