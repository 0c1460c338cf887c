package aggregate

import (
	"maps"
	"slices"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/host"
	"github.com/portolan-mesh/portolan/storage/labels"
)

// Services returns those of all registries, in their order. Services of one
// host in several Kubernetes clusters are one, the first, with the addresses and
// accounts of all; those of other registries are as they are.
func (r *Registry) Services() []*discovery.Service {
	var out []*discovery.Service
	places := map[host.Name]int{} // in out, of services of Kubernetes
	for _, instance := range r.Registries() {
		services := instance.Services()
		if instance.Provider() != discovery.Kubernetes {
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

// GetService returns the service of a host in the first registry that has it;
// one of Kubernetes with what the other clusters add.
func (r *Registry) GetService(hostname host.Name) *discovery.Service {
	var found *discovery.Service
	for _, instance := range r.Registries() {
		s := instance.GetService(hostname)
		switch {
		case s == nil:
		case instance.Provider() != discovery.Kubernetes:
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

// merge returns a service of one Kubernetes cluster with what that of another
// adds. Neither is changed.
func merge(first, other *discovery.Service) *discovery.Service {
	out := *first
	out.ClusterVIPs = union(first.ClusterVIPs, other.ClusterVIPs)
	out.Attributes.ClusterExternalAddresses = union(first.Attributes.ClusterExternalAddresses, other.Attributes.ClusterExternalAddresses)
	out.ServiceAccounts = slices.Concat(first.ServiceAccounts, other.ServiceAccounts)
	slices.Sort(out.ServiceAccounts)
	out.ServiceAccounts = slices.Compact(out.ServiceAccounts)
	return &out
}

// union has the entries of both; where both have one it is the first's.
func union(first, other map[string][]string) map[string][]string {
	if len(other) == 0 {
		return first
	}
	out := maps.Clone(other)
	maps.Copy(out, first)
	return out
}

// InstancesByPort returns those of all registries, in their order.
func (r *Registry) InstancesByPort(service *discovery.Service, port int, selector labels.Instance) []*discovery.ServiceInstance {
	var out []*discovery.ServiceInstance
	for _, instance := range r.Registries() {
		out = append(out, instance.InstancesByPort(service, port, selector)...)
	}
	return out
}

// GetProxyServiceInstances returns those of all registries that may know the
// proxy; of a proxy that reports a cluster, those of the first that does.
func (r *Registry) GetProxyServiceInstances(proxy *discovery.Proxy) []*discovery.ServiceInstance {
	var out []*discovery.ServiceInstance
	for _, instance := range r.Registries() {
		if elsewhere(proxy, instance) {
			continue
		}
		out = append(out, instance.GetProxyServiceInstances(proxy)...)
		if len(out) > 0 && proxy.ClusterID != "" {
			break
		}
	}
	return out
}

// GetProxyWorkloadLabels returns those of the first registry that knows any.
func (r *Registry) GetProxyWorkloadLabels(proxy *discovery.Proxy) labels.Instance {
	for _, instance := range r.Registries() {
		if elsewhere(proxy, instance) {
			continue
		}
		if l := instance.GetProxyWorkloadLabels(proxy); l != nil {
			return l
		}
	}
	return nil
}

// elsewhere says whether a registry is of another cluster than the proxy. The
// others than Kubernetes' span clusters.
func elsewhere(proxy *discovery.Proxy, instance discovery.Instance) bool {
	return instance.Provider() == discovery.Kubernetes && proxy.ClusterID != "" && instance.Cluster() != proxy.ClusterID
}
