package aggregate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-multierror"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/discovery"
)

// Options configure a Registry. XDS and Worker are required.
type Options struct {
	// XDS withdraws the rows of a removed registry.
	XDS discovery.XDSUpdater
	// Worker runs the withdrawal.
	Worker *cache.Worker
}

// Registry joins several registries. All methods may be called from any goroutine.
type Registry struct {
	o Options

	mu        sync.Mutex // guards the fields below
	entries   []*entry   // in the order of answers; replaced, never modified
	services  []discovery.ServiceHandler
	workloads []discovery.WorkloadHandler
	running   context.Context // the context of Run; nil before and after it
	ran       bool
	failed    []error
	lives     sync.WaitGroup // counts the registries that run
}

// entry is one registry of the aggregate.
type entry struct {
	discovery.Instance
	stop  context.CancelFunc // nil until it runs
	ended chan struct{}      // closed when its Run has returned
	err   error              // the error of its Run; set before ended is closed
}

func (e *entry) shard() discovery.ShardKey {
	return discovery.ShardKey{Provider: e.Provider(), Cluster: e.Cluster()}
}

var (
	_ discovery.ServiceDiscovery = (*Registry)(nil)
	_ discovery.Controller       = (*Registry)(nil)
)

// New returns a Registry without members.
func New(o Options) *Registry { return &Registry{o: o} }

// Add adds a registry, which nobody else may run. If the aggregate runs, Add runs the registry
// at once. The registry gets all handlers appended so far. Add refuses a second registry with
// the same provider and cluster, since nothing could tell the two apart.
func (r *Registry) Add(instance discovery.Instance) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := &entry{Instance: instance, ended: make(chan struct{})}
	if i := r.find(e.shard()); i >= 0 {
		return fmt.Errorf("registry %s: there is one already: give it another cluster", e.shard())
	}
	for _, f := range r.services {
		e.AppendServiceHandler(f)
	}
	for _, f := range r.workloads {
		e.AppendWorkloadHandler(f)
	}
	r.entries = slices.Insert(slices.Clone(r.entries), r.place(e), e)
	if r.running != nil {
		r.start(e)
	}
	return nil
}

// place returns the index for a new registry: behind the other Kubernetes registries for a
// Kubernetes registry, else at the end.
func (r *Registry) place(e *entry) int {
	other := func(o *entry) bool { return o.Provider() != discovery.Kubernetes }
	if i := slices.IndexFunc(r.entries, other); i >= 0 && !other(e) {
		return i
	}
	return len(r.entries)
}

func (r *Registry) find(shard discovery.ShardKey) int {
	return slices.IndexFunc(r.entries, func(e *entry) bool { return e.shard() == shard })
}

// If the registry fails, the others go on, its rows stay, and Run returns the error.
func (r *Registry) start(e *entry) {
	ctx, stop := context.WithCancel(r.running)
	e.stop = stop
	r.lives.Go(func() {
		defer close(e.ended)
		defer stop()
		if e.err = e.Run(ctx); e.err != nil {
			r.addFailure(fmt.Errorf("registry %s: %w", e.shard(), e.err))
		}
	})
}

func (r *Registry) addFailure(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = append(r.failed, err)
}

// Remove stops a registry and waits for its end. After Remove has returned, the worker
// withdraws the registry's rows and calls the handlers. Rows of other registries stay.
func (r *Registry) Remove(shard discovery.ShardKey) error {
	r.mu.Lock()
	i := r.find(shard)
	if i < 0 {
		r.mu.Unlock()
		return fmt.Errorf("registry %s: there is none", shard)
	}
	e := r.entries[i]
	r.entries = slices.Delete(slices.Clone(r.entries), i, i+1)
	r.mu.Unlock()
	if e.stop != nil {
		e.stop()
		<-e.ended
	}
	// The registry queued all its posts before it ended, so this one is last.
	r.o.Worker.Post(e, func() { r.withdraw(e) })
	return nil
}

// leaver is a registry that has told more than its rows, such as its workloads. Leave takes all of it
// back, on the worker, once Run has ended.
type leaver interface{ Leave() }

// withdraw runs on the worker.
func (r *Registry) withdraw(e *entry) {
	if l, ok := e.Instance.(leaver); ok {
		l.Leave()
	}
	r.mu.Lock()
	handlers := slices.Clip(r.services)
	r.mu.Unlock()
	services := e.Services()
	for _, s := range services {
		r.o.XDS.SvcUpdate(e.shard(), s.Hostname, s.Attributes.Namespace, nil)
	}
	for _, s := range services {
		for _, f := range handlers {
			f(s, nil, cache.EventDelete)
		}
	}
	if len(services) > 0 {
		r.o.XDS.ConfigUpdate(&discovery.PushRequest{
			Full: true, Reason: map[string]int{discovery.ReasonService: 1}, Start: time.Now(),
		})
	}
}

// Run runs all registries, also those added later, until ctx ends and all have ended. If one
// fails, the others go on; Run returns all errors together.
func (r *Registry) Run(ctx context.Context) error {
	r.mu.Lock()
	if r.ran {
		r.mu.Unlock()
		return errors.New("the registries were run already")
	}
	r.running, r.ran = ctx, true
	for _, e := range r.entries {
		r.start(e)
	}
	r.mu.Unlock()
	<-ctx.Done()
	r.mu.Lock()
	r.running = nil
	r.mu.Unlock()
	r.lives.Wait()
	return r.Failed()
}

// Failed returns the errors with which the Run of registries has ended so far, nil if there
// are none.
func (r *Registry) Failed() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return multierror.Append(nil, r.failed...).ErrorOrNil() // another one each time: readers keep it
}

// Registries returns the registries in the order in which they answer.
func (r *Registry) Registries() []discovery.Instance {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]discovery.Instance, len(r.entries))
	for i, e := range r.entries {
		out[i] = e.Instance
	}
	return out
}

// HasSynced returns true while every registry has synced. A registry that is added has not.
func (r *Registry) HasSynced() bool {
	for _, instance := range r.Registries() {
		if !instance.HasSynced() {
			return false
		}
	}
	return true
}

// AppendServiceHandler implements discovery.Controller. It appends the handler to every
// registry, also to those added later.
func (r *Registry) AppendServiceHandler(f discovery.ServiceHandler) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.services = append(r.services, f)
	for _, e := range r.entries {
		e.AppendServiceHandler(f)
	}
}

// AppendWorkloadHandler is like AppendServiceHandler, for workload instances.
func (r *Registry) AppendWorkloadHandler(f discovery.WorkloadHandler) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.workloads = append(r.workloads, f)
	for _, e := range r.entries {
		e.AppendWorkloadHandler(f)
	}
}
