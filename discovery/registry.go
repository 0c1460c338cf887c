package discovery

import (
	"context"
	"time"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/host"
	"github.com/portolan-mesh/portolan/storage/labels"
)

// Provider names a kind of registry.
type Provider string

// The providers.
const (
	External   Provider = "External" // ServiceEntry
	Consul     Provider = "Consul"
	Kubernetes Provider = "Kubernetes"
	Memory     Provider = "Memory"
)

// ShardKey names the registry instance that a row comes from. Shards of one
// service are put together in the order of their keys.
type ShardKey struct {
	Provider Provider
	Cluster  string
}

// String is "provider/cluster".
func (k ShardKey) String() string { return string(k.Provider) + "/" + k.Cluster }

// ServiceDiscovery answers what is known of services now.
type ServiceDiscovery interface {
	// Services returns all services, in CompareServices order.
	Services() []*Service
	// GetService returns the service of a host, nil where there is none.
	GetService(hostname host.Name) *Service
	// InstancesByPort returns the instances of a service port whose labels are a
	// superset of the given ones; all for no labels.
	InstancesByPort(service *Service, port int, labels labels.Instance) []*ServiceInstance
	// GetProxyServiceInstances returns one instance per service port that is
	// served where the proxy is; none for a stand-alone proxy.
	GetProxyServiceInstances(proxy *Proxy) []*ServiceInstance
	// GetProxyWorkloadLabels returns the labels of the workload at the proxy's
	// address, nil where the registry knows none.
	GetProxyWorkloadLabels(proxy *Proxy) labels.Instance
}

// ServiceHandler is told of a changed service, WorkloadHandler of a changed
// workload instance.
type (
	ServiceHandler  func(old, curr *Service, event cache.Event)
	WorkloadHandler func(*WorkloadInstance, cache.Event)
)

// Controller is the running half of a registry.
type Controller interface {
	// AppendServiceHandler adds a handler for services. Before Run only.
	AppendServiceHandler(ServiceHandler)
	// AppendWorkloadHandler adds a handler for workload instances. Before Run
	// only.
	AppendWorkloadHandler(WorkloadHandler)
	// Run keeps the registry in step with its source until ctx ends.
	Run(ctx context.Context) error
	// HasSynced is true once the first state has reached the XDSUpdater.
	HasSynced() bool
}

// Instance is a whole registry.
type Instance interface {
	Controller
	ServiceDiscovery
	Provider() Provider
	Cluster() string
}

// XDSUpdater takes the rows of registries. Its methods are called on the worker
// only; what was handed over is committed as one when the task ends. The slices
// are owned by the updater afterwards.
type XDSUpdater interface {
	// SvcUpdate sets all services that a shard has under a host and namespace,
	// one per address; none removes the row, and the shard's endpoints with it.
	SvcUpdate(shard ShardKey, hostname host.Name, namespace string, services []*Service)
	// EDSUpdate sets all endpoints that a shard has for a host and namespace.
	EDSUpdate(shard ShardKey, hostname host.Name, namespace string, endpoints []*Endpoint)
	// EDSCacheUpdate is EDSUpdate for a caller that wakes by other means.
	EDSCacheUpdate(shard ShardKey, hostname host.Name, namespace string, endpoints []*Endpoint)
	// ConfigUpdate wakes the pusher. Of the request only Reason and Start are
	// read: what is pushed is derived from the rows.
	ConfigUpdate(*PushRequest)
	// ProxyUpdate wakes the pusher for the proxy at an address.
	ProxyUpdate(cluster, ip string)
}

// PushRequest says what a push is about. It is derived from the difference of
// two push contexts, never merged by hand.
type PushRequest struct {
	// Full is false where nothing but endpoints, health or the instances at an
	// address changed.
	Full bool
	// ConfigsUpdated are the objects that differ, and (ServiceEntry, hostname,
	// namespace) for every changed service or endpoint row.
	ConfigsUpdated map[config.Key]struct{}
	// Reason counts what woke the pusher.
	Reason map[string]int
	// Start is when the first of these woke it.
	Start time.Time
}

// The reasons of a wake-up.
const (
	ReasonConfig   = "config"
	ReasonService  = "service"
	ReasonEndpoint = "endpoint"
	ReasonProxy    = "proxy"
	ReasonMesh     = "mesh"
)
