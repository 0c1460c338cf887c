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
	// Endpoints are those in use, in the order of their shards, within a shard in the registry's order.
	// OutOfUse are the others, in the same order.
	Endpoints, OutOfUse []*discovery.Endpoint
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

// NewEndpoints makes the row of the endpoints of shards, which are in order.
func NewEndpoints(hostname host.Name, namespace string, shards []ShardEndpoints) *Endpoints {
	out := &Endpoints{Hostname: hostname, Namespace: namespace, Shards: make([]ShardSize, len(shards))}
	for i, s := range shards {
		used := discovery.InUse(s.Endpoints)
		out.Shards[i] = ShardSize{Shard: s.Shard, Count: len(used)}
		if len(used) < len(s.Endpoints) {
			out.OutOfUse = append(out.OutOfUse, slices.DeleteFunc(slices.Clone(s.Endpoints), func(e *discovery.Endpoint) bool { return e.Health != discovery.OutOfUse })...)
		}
		if len(shards) == 1 {
			out.Endpoints = used
		} else {
			out.Endpoints = append(out.Endpoints, used...)
		}
	}
	return out
}

// ShardEndpoints are the endpoints of a shard.
type ShardEndpoints struct {
	Shard     discovery.ShardKey
	Endpoints []*discovery.Endpoint
}

// Workloads returns the endpoints, also those out of use, none for a nil row.
func (r *Endpoints) Workloads() []*discovery.Endpoint {
	if r == nil || len(r.OutOfUse) == 0 {
		return r.All()
	}
	return slices.Concat(r.Endpoints, r.OutOfUse)
}

// All returns the endpoints in use, none for a nil row.
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
		slices.EqualFunc(r.Endpoints, o.Endpoints, (*discovery.Endpoint).Equal) &&
		slices.EqualFunc(r.OutOfUse, o.OutOfUse, (*discovery.Endpoint).Equal)
}
