package consul

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/portolan-mesh/portolan/discovery"
)

// Registry is a discovery.Instance of provider Consul. Its queries may be called
// from any goroutine. The worker calls service handlers after the rows of the service were
// handed over. Workload handlers are never called: an instance in Consul belongs to the
// service that it is registered for, and no other selects it.
type Registry struct {
	discovery.Published // the publisher, for reading

	o           Options
	client      *client
	metrics     *metrics
	catalog     *catalog
	datacenters []*datacenter
	publisher   *discovery.Publisher
	synced      atomic.Bool
	reported    reported
}

// reported are the flaws that were logged, by service.
type reported struct {
	mu      sync.Mutex // guards reasons
	reasons map[string]map[string]bool
}

var _ discovery.Instance = (*Registry)(nil)

// source is the key of posts to the worker: the name of a service, or empty for the
// registry as a whole.
type source struct {
	registry *Registry
	service  string
}

// New makes a registry. It does not talk to Consul before Run.
func New(o Options) (*Registry, error) {
	if err := o.complete(); err != nil {
		return nil, fmt.Errorf("consul: %w", err)
	}
	client, err := newClient(&o)
	if err != nil {
		return nil, fmt.Errorf("consul: %w", err)
	}
	publisher := discovery.NewPublisher(discovery.ShardKey{Provider: discovery.Consul, Cluster: o.Cluster}, o.XDS)
	r := &Registry{Published: publisher, publisher: publisher, o: o, client: client, catalog: newCatalog()}
	r.reported.reasons = map[string]map[string]bool{}
	r.metrics = newMetrics(o.Registerer, r)
	for _, name := range o.Datacenters {
		r.datacenters = append(r.datacenters, newDatacenter(r, name, o.MaxQueries/len(o.Datacenters)))
	}
	return r, nil
}

// Run follows the catalogue until ctx ends. A Consul that is away is waited for;
// what was known of it stays.
func (r *Registry) Run(ctx context.Context) error {
	r.publisher.Close()
	defer r.client.close()
	var running sync.WaitGroup
	for _, d := range r.datacenters {
		running.Go(func() { d.run(ctx) })
	}
	running.Wait()
	return nil
}

// HasSynced is true once the whole catalogue of every datacentre was handed over, or
// the last known content of one that cannot be read.
func (r *Registry) HasSynced() bool { return r.synced.Load() }

// publish has the worker write the rows of services.
func (r *Registry) publish(services []string) {
	for _, name := range services {
		r.o.Worker.Post(source{r, name}, func() { r.write(name) })
	}
}

// settled is called when a datacentre may be served from now on, after its services
// were published.
func (r *Registry) settled() {
	if r.synced.Load() || !r.catalog.areSettled(r.o.Datacenters) {
		return
	}
	r.o.Worker.Post(source{registry: r}, func() {
		r.o.Worker.Then(func() { r.synced.Store(true) })
	})
}

// write hands over the row of a service as it is known now. It runs on the
// worker.
func (r *Registry) write(name string) {
	r.publisher.Publish(rowOf(&r.o, name, r.catalog.instances(name)))
}
