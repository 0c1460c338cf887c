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
	File       Provider = "File" // files of targets in Prometheus' format
)

// ShardKey names the registry instance that a row comes from. Shards of one
// service are put together in the order of their keys.
type ShardKey struct {
	Provider Provider
	Cluster  string
}

// String returns "provider/cluster".
func (k ShardKey) String() string { return string(k.Provider) + "/" + k.Cluster }

// ServiceDiscovery answers queries about the current services.
type ServiceDiscovery interface {
	// Services returns all services, in CompareServices order.
	Services() []*Service
	// GetService returns the service of a host, nil where there is none.
	GetService(hostname host.Name) *Service
	// InstancesByPort returns the instances of a service port whose labels are a superset of
	// the given ones; without labels, all of them.
	InstancesByPort(service *Service, port int, labels labels.Instance) []*ServiceInstance
	// GetProxyServiceInstances returns one instance per service port that is served at the
	// proxy's addresses; none for a stand-alone proxy.
	GetProxyServiceInstances(proxy *Proxy) []*ServiceInstance
	// GetProxyWorkloadLabels returns the labels of the workload at the proxy's
	// address, nil where the registry knows none.
	GetProxyWorkloadLabels(proxy *Proxy) labels.Instance
}

// A ServiceHandler is called for a changed service, and a WorkloadHandler for a changed
// workload instance.
type (
	ServiceHandler  func(old, curr *Service, event cache.Event)
	WorkloadHandler func(*WorkloadInstance, cache.Event)
)

// Controller is the running half of a registry.
type Controller interface {
	// AppendServiceHandler adds a handler for services. Call it before Run.
	AppendServiceHandler(ServiceHandler)
	// AppendWorkloadHandler adds a handler for workload instances. Call it before Run.
	AppendWorkloadHandler(WorkloadHandler)
	// Run keeps the registry in step with its source until ctx ends.
	Run(ctx context.Context) error
	// HasSynced returns true once the first state has reached the XDSUpdater.
	HasSynced() bool
}

// Instance is a whole registry.
type Instance interface {
	Controller
	ServiceDiscovery
	Provider() Provider
	Cluster() string
	// Fork returns the registry's state at the end of the worker's last task, for deriving
	// hypothetical rows. Call it on the worker, after the hook in which the registry publishes
	// its rows.
	Fork() Fork
}

// XDSUpdater receives the rows of registries. Its methods are called only on the worker, and
// all rows of one task are committed together. No method wakes the pusher; the commit at the
// end of the task does, if something differs. The updater owns the slices afterwards.
type XDSUpdater interface {
	// SvcUpdate sets all services that a shard has under a host and namespace, one per
	// address. Without services it removes the row and the shard's endpoints.
	SvcUpdate(shard ShardKey, hostname host.Name, namespace string, services []*Service)
	// EDSUpdate sets all endpoints that a shard has for a host and namespace.
	EDSUpdate(shard ShardKey, hostname host.Name, namespace string, endpoints []*Endpoint)
	// EDSCacheUpdate is like EDSUpdate, for endpoints that come with a SvcUpdate. It counts no
	// reason.
	EDSCacheUpdate(shard ShardKey, hostname host.Name, namespace string, endpoints []*Endpoint)
	// ConfigUpdate counts the reasons of the next push. It reads only Reason of the
	// request: the push is derived from the rows.
	ConfigUpdate(*PushRequest)
	// ProxyUpdate counts a proxy at an address as a reason of the next push.
	ProxyUpdate(cluster, ip string)
}

// PushRequest says why a registry expects a push. It never decides what is pushed: the
// difference of two push contexts does.
type PushRequest struct {
	// Full is false if only endpoints, health or the instances at an address changed.
	Full bool
	// ConfigsUpdated holds the changed objects, and (ServiceEntry, hostname, namespace) for
	// every changed service or endpoint row.
	ConfigsUpdated map[config.Key]struct{}
	// Reason counts what changed, by kind. The server reads nothing else.
	Reason map[string]int
	// Start is when the registry made the request.
	Start time.Time
}

// The reasons of a push.
const (
	ReasonConfig   = "config"
	ReasonService  = "service"
	ReasonEndpoint = "endpoint"
	ReasonProxy    = "proxy"
	ReasonMesh     = "mesh"
)
