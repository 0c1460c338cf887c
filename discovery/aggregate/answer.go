package aggregate

import (
	"iter"
	"maps"
	"slices"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/host"
	"github.com/portolan-mesh/portolan/storage/labels"
)

// member is a registry, or a fork of one, with its shard.
type member struct {
	discovery.ServiceDiscovery
	shard discovery.ShardKey
}

// members answers queries from several registries, in order.
type members []member

// members returns the registries in order.
func (r *Registry) members() members {
	var out members
	for _, i := range r.Registries() {
		out = append(out, member{i, discovery.ShardKey{Provider: i.Provider(), Cluster: i.Cluster()}})
	}
	return out
}

// Services implements discovery.ServiceDiscovery.
func (r *Registry) Services() []*discovery.Service { return r.members().Services() }

// GetService implements discovery.ServiceDiscovery.
func (r *Registry) GetService(hostname host.Name) *discovery.Service {
	return r.members().GetService(hostname)
}

// InstancesByPort implements discovery.ServiceDiscovery.
func (r *Registry) InstancesByPort(service *discovery.Service, port int, selector labels.Instance) []*discovery.ServiceInstance {
	return r.members().InstancesByPort(service, port, selector)
}

// GetProxyServiceInstances implements discovery.ServiceDiscovery.
func (r *Registry) GetProxyServiceInstances(proxy *discovery.Proxy) []*discovery.ServiceInstance {
	return r.members().GetProxyServiceInstances(proxy)
}

// GetProxyWorkloadLabels implements discovery.ServiceDiscovery.
func (r *Registry) GetProxyWorkloadLabels(proxy *discovery.Proxy) labels.Instance {
	return r.members().GetProxyWorkloadLabels(proxy)
}

// fork joins the forks of all registries.
type fork struct {
	members
	forks []discovery.Fork // in the order of the members
}

// Fork returns a fork of all registries. Call it only where Fork of a registry may be called.
func (r *Registry) Fork() discovery.Fork {
	out := &fork{}
	for _, i := range r.Registries() {
		out.add(discovery.ShardKey{Provider: i.Provider(), Cluster: i.Cluster()}, i.Fork())
	}
	return out
}

func (f *fork) add(shard discovery.ShardKey, one discovery.Fork) {
	f.members, f.forks = append(f.members, member{one, shard}), append(f.forks, one)
}

// Apply implements discovery.Fork. Registries that select workloads of others are told of those
// that changed.
func (f *fork) Apply(from, to *cache.Snapshot, xds discovery.XDSUpdater) discovery.Fork {
	applied := make([]discovery.Fork, len(f.forks))
	var offers []discovery.Offer
	for i, one := range f.forks {
		applied[i] = one.Apply(from, to, xds)
		if o, ok := applied[i].(discovery.OfferingFork); ok {
			offers = append(offers, o.Offers()...)
		}
	}
	out := &fork{}
	for i, one := range applied {
		if s, ok := one.(discovery.SelectingFork); ok && len(offers) > 0 {
			one = s.Select(offers, xds)
		}
		out.add(f.members[i].shard, one)
	}
	return out
}

var _ discovery.Advisor = (*fork)(nil)

// Advise implements discovery.Advisor. It returns the advice of all registries, as far as it holds
// in view of the others.
func (f *fork) Advise(key config.Key) []discovery.Advice {
	var out []discovery.Advice
	for _, one := range f.forks {
		if a, ok := one.(discovery.Advisor); ok {
			out = append(out, a.Advise(key)...)
		}
	}
	return slices.DeleteFunc(out, func(a discovery.Advice) bool { return a.Unselected && f.selects(key) })
}

func (f *fork) selects(key config.Key) bool {
	return slices.ContainsFunc(f.forks, func(one discovery.Fork) bool {
		s, ok := one.(discovery.SelectingFork)
		return ok && s.Selects(key.Namespace, key.Name)
	})
}

// AdvisedAnew implements discovery.Advisor. It matches registries by their shards.
func (f *fork) AdvisedAnew(from discovery.Fork) iter.Seq[config.Key] {
	before, _ := from.(*fork)
	if before == nil {
		before = &fork{}
	}
	return func(yield func(config.Key) bool) {
		for i, one := range f.forks {
			a, ok := one.(discovery.Advisor)
			if !ok {
				continue
			}
			var earlier discovery.Fork
			if k := slices.IndexFunc(before.members, func(m member) bool { return m.shard == f.members[i].shard }); k >= 0 {
				earlier = before.forks[k]
			}
			for key := range a.AdvisedAnew(earlier) {
				if !yield(key) {
					return
				}
			}
		}
		for i, one := range before.forks { // those of registries that have gone
			a, ok := one.(discovery.Advisor)
			if !ok || slices.ContainsFunc(f.members, func(m member) bool { return m.shard == before.members[i].shard }) {
				continue
			}
			for key := range a.AdvisedAnew(nil) {
				if !yield(key) {
					return
				}
			}
		}
	}
}

// Services returns the services of all registries, in their order. It merges the
// services of one host in several Kubernetes clusters: the first gets the addresses and
// accounts of all.
func (all members) Services() []*discovery.Service {
	var out []*discovery.Service
	places := map[host.Name]int{} // index in out of each Kubernetes service
	for _, instance := range all {
		services := instance.Services()
		if instance.shard.Provider != discovery.Kubernetes {
			out = append(out, services...)
			continue
		}
		for _, s := range services {
			if i, met := places[s.Hostname]; met {
				out[i] = merge(out[i], s)
				continue
			}
			places[s.Hostname] = len(out)
			out = append(out, s)
		}
	}
	return out
}

// GetService returns the service of a host from the first registry that has it. To a
// Kubernetes service it adds the addresses and accounts of the other clusters.
func (all members) GetService(hostname host.Name) *discovery.Service {
	var found *discovery.Service
	for _, instance := range all {
		s := instance.GetService(hostname)
		switch {
		case s == nil:
		case instance.shard.Provider != discovery.Kubernetes:
			if found == nil {
				return s
			}
		case found == nil:
			found = s
		default:
			found = merge(found, s)
		}
	}
	return found
}

// merge returns a copy of a Kubernetes service with the addresses and accounts of the same
// service in another cluster added. It changes neither.
func merge(first, other *discovery.Service) *discovery.Service {
	out := *first
	out.ClusterVIPs = union(first.ClusterVIPs, other.ClusterVIPs)
	out.Attributes.ClusterExternalAddresses = union(first.Attributes.ClusterExternalAddresses, other.Attributes.ClusterExternalAddresses)
	out.ServiceAccounts = slices.Concat(first.ServiceAccounts, other.ServiceAccounts)
	slices.Sort(out.ServiceAccounts)
	out.ServiceAccounts = slices.Compact(out.ServiceAccounts)
	return &out
}

// union returns the entries of both maps; for a key in both, the entry of first.
func union(first, other map[string][]string) map[string][]string {
	if len(other) == 0 {
		return first
	}
	out := maps.Clone(other)
	maps.Copy(out, first)
	return out
}

// InstancesByPort returns the instances of all registries, in their order.
func (all members) InstancesByPort(service *discovery.Service, port int, selector labels.Instance) []*discovery.ServiceInstance {
	var out []*discovery.ServiceInstance
	for _, instance := range all {
		out = append(out, instance.InstancesByPort(service, port, selector)...)
	}
	return out
}

// GetProxyServiceInstances returns the instances of all registries that may know the proxy.
// If the proxy reports a cluster, it returns the instances of the first registry that knows
// that cluster.
func (all members) GetProxyServiceInstances(proxy *discovery.Proxy) []*discovery.ServiceInstance {
	var out []*discovery.ServiceInstance
	for _, instance := range all {
		if inOtherCluster(proxy, instance) {
			continue
		}
		out = append(out, instance.GetProxyServiceInstances(proxy)...)
		if len(out) > 0 && proxy.ClusterID != "" {
			break
		}
	}
	return out
}

// GetProxyWorkloadLabels returns the labels of the first registry that has any.
func (all members) GetProxyWorkloadLabels(proxy *discovery.Proxy) labels.Instance {
	for _, instance := range all {
		if inOtherCluster(proxy, instance) {
			continue
		}
		if l := instance.GetProxyWorkloadLabels(proxy); l != nil {
			return l
		}
	}
	return nil
}

// inOtherCluster says whether a registry is of another cluster than the proxy. Only Kubernetes
// registries belong to one cluster.
func inOtherCluster(proxy *discovery.Proxy, instance member) bool {
	return instance.shard.Provider == discovery.Kubernetes && proxy.ClusterID != "" && instance.shard.Cluster != proxy.ClusterID
}
