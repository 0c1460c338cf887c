package kube

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/cache/kube/cluster"
	"github.com/portolan-mesh/portolan/cache/kube/selection"
	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/pmap"
)

// Registry is the registry of one cluster. Its queries may be called from any goroutine. The worker
// calls service handlers after it has published the rows of the service, and workload handlers for
// pods that become ready, change, or are ready no more.
type Registry struct {
	discovery.ServiceDiscovery // the index, for reading

	clusters *Clusters
	place    int // among the registries of the clusters: see before
	convert  converter
	link     atomic.Pointer[link]
	replaced chan struct{} // holds a token when link may differ from the one that Run follows
	index    *discovery.Index
	handlers discovery.Handlers
	synced   atomic.Bool
	settled  atomic.Pointer[fork] // the state at the end of the last task
	inbox    inbox

	// The fields below belong to the worker.

	known known
	marks marks
	// aside are the objects in namespaces that do not count, by object.path, as selected says.
	aside    pmap.Map[object]
	selected selection.Selection
}

var _ discovery.Instance = (*Registry)(nil)

// Registry returns a new registry of a cluster, which proxies name as their cluster. It reads
// nothing before Run. The connection is its own: see cluster.Cluster.Share.
func (c *Clusters) Registry(connection *cluster.Cluster) *Registry {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.make(&link{Cluster: connection}, len(c.made))
}

// make makes a registry at a place. The caller holds the lock.
func (c *Clusters) make(l *link, place int) *Registry {
	index := &discovery.Index{}
	r := &Registry{
		ServiceDiscovery: index, clusters: c, place: place, replaced: make(chan struct{}, 1), index: index, marks: newMarks(),
		convert: converter{cluster: l.Name(), domain: c.o.Domain, trustDomain: c.o.TrustDomain},
	}
	r.link.Store(l)
	at, _ := slices.BinarySearchFunc(c.made, r, before)
	c.made = slices.Insert(slices.Clone(c.made), at, r)
	for _, f := range c.handlers {
		r.AppendWorkloadHandler(f)
	}
	r.inbox.pending = map[string]object{}
	r.publishState()
	return r
}

// Provider implements discovery.Instance.
func (r *Registry) Provider() discovery.Provider { return discovery.Kubernetes }

// Cluster implements discovery.Instance.
func (r *Registry) Cluster() string { return r.convert.cluster }

// AppendServiceHandler implements discovery.Controller.
func (r *Registry) AppendServiceHandler(f discovery.ServiceHandler) {
	r.handlers.AppendServiceHandler(f)
}

// AppendWorkloadHandler implements discovery.Controller.
func (r *Registry) AppendWorkloadHandler(f discovery.WorkloadHandler) {
	r.handlers.AppendWorkloadHandler(f)
}

// HasSynced returns true once the rows of all that the cluster has are published. If the cluster
// cannot be read in time, it returns true once what was last known of it is.
func (r *Registry) HasSynced() bool { return r.synced.Load() }

// Run follows the cluster until ctx ends. While the cluster is away, all that was known stays.
func (r *Registry) Run(ctx context.Context) error {
	r.handlers.Close()
	wait := r.clusters.o.FirstPatience
	if r.restore(ctx) {
		wait = r.clusters.o.Patience
	}
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() {
		patience := time.NewTimer(wait)
		defer patience.Stop()
		select {
		case <-ctx.Done():
		case <-patience.C:
			if _, restored := r.inbox.lastKnown(); !restored && !r.inbox.hasBegun() {
				r.clusters.o.Logger.Warn("a cluster was not read in time: the server starts without its services", "cluster", r.Cluster(), "waited", wait)
			}
			r.inbox.endWait()
			r.post()
		}
	})
	for {
		if err := r.followUntilReplaced(ctx); err != nil || ctx.Err() != nil {
			return err
		}
		r.restart(ctx)
	}
}

// inbox has what the cluster told and the worker has not taken yet. Of several changes of an object
// it has the last, so it is no larger than the cluster.
type inbox struct {
	mu sync.Mutex // guards the fields below
	// pending has the objects by path, nil for one that is gone.
	pending map[string]object
	// listed are the kinds whose list was told, and refused those that the cluster denies or does not
	// have. selected says which namespaces count; nil if it is not known. Nothing is taken before all of
	// this is known: a Service without its endpoints is none.
	listed, refused [kinds]bool
	selected        *selection.Selection
	begun           bool        // what the cluster told was taken once
	taken           [kinds]bool // the whole lists that were taken
	waited          bool        // the time to wait for the lists is over
	// restored has the paths of the objects that were last known, of each kind until its list is taken.
	restored map[string]bool
	// confirmed is when what was last known was confirmed; zero if nothing was.
	confirmed time.Time
}

func (i *inbox) put(listed int, changes map[string]object) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if listed >= 0 {
		i.listed[listed] = true
	}
	maps.Copy(i.pending, changes)
}

// setRefused says whether the cluster denies a kind or does not have it. Nobody waits for its list then.
func (i *inbox) setRefused(kind int, refused bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.refused[kind] = refused
}

func (i *inbox) endWait() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.waited = true
}

// take returns what waits, which namespaces count, and whether there is an end to the wait for the
// first state. What was last known of a kind and is not in its list is gone; of a kind without a list
// it stays. selected is nil if nothing is taken.
func (i *inbox) take() (changes map[string]object, selected *selection.Selection, settled bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.selected == nil || !i.begun && !i.answered() {
		return nil, nil, i.waited
	}
	if !slices.Contains(i.listed[:], true) {
		return nil, nil, true // all kinds are refused: what was last known stays as it is
	}
	i.begun = true
	for kind := range kinds {
		if i.listed[kind] && !i.taken[kind] {
			i.forget(followed[kind].prefix)
			i.taken[kind] = true
		}
	}
	changes, i.pending = i.pending, map[string]object{}
	return changes, i.selected, true
}

// answered says whether each kind was listed or refused. The caller holds mu.
func (i *inbox) answered() bool {
	for kind := range kinds {
		if !i.listed[kind] && !i.refused[kind] {
			return false
		}
	}
	return true
}

// forget takes back what was last known of a kind and is not in its list. The caller holds mu.
func (i *inbox) forget(prefix string) {
	for path := range i.restored {
		if !strings.HasPrefix(path, prefix) {
			continue
		}
		if i.pending[path] == nil {
			i.pending[path] = nil
		}
		delete(i.restored, path)
	}
}

// hasBegun says whether what the cluster told was taken once.
func (i *inbox) hasBegun() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.begun
}

// tellsPods says whether the cluster tells of its pods: they were listed, and it does not deny them.
func (i *inbox) tellsPods() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.taken[podKind] && !i.refused[podKind]
}

// isWhole says whether the lists of all kinds were taken.
func (i *inbox) isWhole() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return !slices.Contains(i.taken[:], false)
}

// told takes changes of the cluster, nil for an object that is gone. The number of the kind says
// that its whole list is among what was told; -1 says nothing.
func (r *Registry) told(listed int, changes map[string]object) {
	r.inbox.put(listed, changes)
	r.post()
}

func (r *Registry) post() { r.clusters.o.Worker.Post(r, r.drain) }

// drain takes what waits. It runs on the worker.
func (r *Registry) drain() {
	r.clusters.join(r)
	changes, selected, settled := r.inbox.take()
	if selected != nil {
		r.choose(*selected)
		r.known.setTellsPods(r.inbox.tellsPods(), &r.marks)
	}
	r.apply(changes)
	if settled && !r.synced.Load() {
		r.clusters.o.Worker.Then(func() { r.synced.Store(true) })
	}
}

// apply changes what is known, in a fixed order, and calls the handlers of workloads.
func (r *Registry) apply(changes map[string]object) {
	for _, path := range slices.Sorted(maps.Keys(changes)) {
		r.put(path, changes[path])
	}
	for _, change := range r.marks.pods {
		r.handlers.WorkloadChanged(cmp.Or(change.after, change.before), change.event())
	}
	r.marks.pods = nil
}

func (r *Registry) shard() discovery.ShardKey {
	return discovery.ShardKey{Provider: r.Provider(), Cluster: r.Cluster()}
}

// publish publishes the rows of the marked Services, and calls their handlers.
func (r *Registry) publish() {
	defer r.publishState()
	changed := 0
	for _, key := range slices.Sorted(maps.Keys(r.marks.services)) {
		change := r.index.Publish(r.clusters.o.XDS, r.shard(), r.known.row(r.convert, key))
		if change.Services {
			changed++
		}
		r.handlers.ServicesChanged(change)
	}
	clear(r.marks.services)
	if changed > 0 {
		r.clusters.o.XDS.ConfigUpdate(&discovery.PushRequest{
			Full: true, Reason: map[string]int{discovery.ReasonService: changed}, Start: time.Now(),
		})
	}
}

func (c podChange) event() cache.Event {
	switch {
	case c.before == nil:
		return cache.EventAdd
	case c.after == nil:
		return cache.EventDelete
	}
	return cache.EventUpdate
}
