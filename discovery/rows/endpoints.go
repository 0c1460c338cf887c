package rows

import (
	"iter"
	"slices"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/host"
)

// Endpoints is the row of a service's endpoints from all registries. It is replaced only when
// its content differs.
type Endpoints struct {
	Hostname  host.Name
	Namespace string
	// Endpoints are in the order of their shards, within a shard in the registry's order.
	Endpoints []*discovery.Endpoint
	// Shards says which endpoints come from which shard: the first Count endpoints come from
	// the first shard.
	Shards []ShardSize

	localities []*Locality // see Localities
}

// ShardSize is how many endpoints of a row a shard has.
type ShardSize struct {
	Shard discovery.ShardKey
	Count int
}

// All returns the endpoints, none for a nil row.
func (r *Endpoints) All() []*discovery.Endpoint {
	if r == nil {
		return nil
	}
	return r.Endpoints
}

// ByShard iterates over the endpoints with their shards.
func (r *Endpoints) ByShard() iter.Seq2[discovery.ShardKey, *discovery.Endpoint] {
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
func (r *Endpoints) Equal(o *Endpoints) bool {
	if r == nil || o == nil {
		return r == o
	}
	return r.Hostname == o.Hostname && r.Namespace == o.Namespace && slices.Equal(r.Shards, o.Shards) &&
		slices.EqualFunc(r.Endpoints, o.Endpoints, (*discovery.Endpoint).Equal)
}
