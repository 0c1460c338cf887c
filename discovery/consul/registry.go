package consul

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/portolan-mesh/portolan/discovery"
)

// Registry is a discovery.Instance of provider Consul. Its queries may be called from any
// goroutine. The worker calls service handlers after it has published the rows of the service.
// Workload handlers are never called: an instance in Consul belongs to the service that it is
// registered for, and no other service selects it.
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

// reported holds the flaws that were logged, by service.
type reported struct {
	mu      sync.Mutex // guards reasons
	reasons map[string]map[string]bool
}

var _ discovery.Instance = (*Registry)(nil)

// source is the key of posts to the worker: the name of a service, or empty for the whole
// registry.
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

// Run follows the catalogue until ctx ends. While Consul is away, Run retries, and all that
// was known stays.
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

// HasSynced returns true once every datacentre is published as a whole or, if Consul could not
// be read in time, with its last known content.
func (r *Registry) HasSynced() bool { return r.synced.Load() }

// publish posts the rows of services to the worker.
func (r *Registry) publish(services []string) {
	for _, name := range services {
		r.o.Worker.Post(source{r, name}, func() { r.write(name) })
	}
}

// datacenterServed is called when a datacentre may be served, after its services were published.
func (r *Registry) datacenterServed() {
	if r.synced.Load() || !r.catalog.areSettled(r.o.Datacenters) {
		return
	}
	r.o.Worker.Post(source{registry: r}, func() {
		r.o.Worker.Then(func() { r.synced.Store(true) })
	})
}

// write publishes the current row of a service. It runs on the worker.
func (r *Registry) write(name string) {
	r.publisher.Publish(rowOf(&r.o, name, r.catalog.instances(name)))
}
