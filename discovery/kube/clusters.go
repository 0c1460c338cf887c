package kube

import (
	"cmp"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/discovery/lastknown"
	"github.com/portolan-mesh/portolan/storage/pmap"
)

// Options configure Clusters. XDS, Worker and Configs are required.
type Options struct {
	// XDS receives the rows.
	XDS discovery.XDSUpdater
	// Worker is the worker that runs the handlers of Configs.
	Worker *cache.Worker
	// Configs has the mesh configuration. It must not be running yet.
	Configs Configs
	// Domain follows svc in the host names of Services; empty means DefaultDomain.
	Domain string
	// TrustDomain is the trust domain of service accounts; empty means
	// discovery.DefaultTrustDomain.
	TrustDomain string
	// DefaultExportTo returns the exportTo of Services without one, by a configuration; empty means
	// public, and so does a nil function. It must not block.
	DefaultExportTo func(*cache.Snapshot) []string
	// Memory has what was last known of the clusters; nil for nothing.
	Memory lastknown.Memory
	// Logger may be nil.
	Logger *slog.Logger
	// Patience is how long HasSynced waits for a cluster of which something was last known, and
	// FirstPatience for one of which nothing was; 0 means DefaultPatience and DefaultFirstPatience.
	Patience, FirstPatience time.Duration
}

// Configs calls a handler for each snapshot of the configuration. A cache.ConfigStoreCache does.
type Configs interface {
	RegisterSnapshotHandler(cache.SnapshotHandler) error
}

// The defaults of Options.
const (
	DefaultDomain        = "cluster.local"
	DefaultPatience      = time.Second
	DefaultFirstPatience = 30 * time.Second
)

// Clusters has what the registries of all clusters share: the workloads of other registries that
// their Services select, and the order of the clusters.
type Clusters struct {
	o Options

	mu       sync.Mutex  // guards the fields below
	made     []*Registry // in order: see before
	handlers []discovery.WorkloadHandler

	// The fields below belong to the worker.

	joined    []*Registry // in order
	workloads pmap.Map[*discovery.WorkloadInstance]
	exportTo  *[]string
}

// New returns Clusters without a registry. It adds a hook to the worker that publishes rows. So
// call it before adding a hook that commits rows. It panics if o.Configs refuses the handler, which
// is a mistake in the wiring.
func New(o Options) *Clusters {
	o.Domain = strings.ToLower(strings.Trim(cmp.Or(o.Domain, DefaultDomain), "."))
	o.TrustDomain = cmp.Or(o.TrustDomain, discovery.DefaultTrustDomain)
	o.Patience, o.FirstPatience = cmp.Or(o.Patience, DefaultPatience), cmp.Or(o.FirstPatience, DefaultFirstPatience)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	c := &Clusters{o: o}
	if err := o.Configs.RegisterSnapshotHandler(c.exportHandler); err != nil {
		panic(fmt.Sprintf("kube.New: %v", err))
	}
	o.Worker.AtTaskEnd(c.flush)
	return c
}

// exportHandler builds the Services without exportTo anew, if their default differs.
func (c *Clusters) exportHandler(_, to *cache.Snapshot) {
	if c.o.DefaultExportTo == nil {
		return
	}
	exportTo := c.o.DefaultExportTo(to)
	if c.exportTo != nil && slices.Equal(*c.exportTo, exportTo) {
		return
	}
	c.exportTo = &exportTo
	for _, r := range c.joined {
		r.known.setExportTo(c.exportTo, &r.marks)
	}
}

func (k *known) setExportTo(to *[]string, m *marks) {
	k.exportTo = to
	for path, item := range k.objects.Prefix(servicePrefix) {
		if s, _ := item.(*service); s != nil && len(s.ExportTo) == 0 {
			m.services[strings.TrimPrefix(path, servicePrefix)] = struct{}{}
		}
	}
}

// WorkloadInstanceHandler makes a workload of another registry selectable by the Services of its
// namespace. It ignores pods, workloads without namespace or labels, and those whose address is no
// IP. It is a discovery.WorkloadHandler. Call it only on the worker.
func (c *Clusters) WorkloadInstanceHandler(w *discovery.WorkloadInstance, event cache.Event) {
	if w.Provider == discovery.Kubernetes || w.Namespace == "" {
		return
	}
	curr := selectable(w, event)
	key := serviceKey(w.Namespace, w.Name)
	if curr == nil {
		c.workloads = c.workloads.Delete(key)
	} else {
		c.workloads = c.workloads.Set(key, curr)
	}
	for _, r := range c.joined {
		r.known.setWorkload(w.Namespace, w.Name, curr, &r.marks)
	}
}

// selectable returns the workload as Services may select it, nil if none may.
func selectable(w *discovery.WorkloadInstance, event cache.Event) *discovery.WorkloadInstance {
	if event == cache.EventDelete || w.DNSServiceEntryOnly || len(w.Endpoint.Labels) == 0 {
		return nil
	}
	return w
}

// AppendWorkloadHandler has the registries of all clusters call a handler for their pods, also the
// later ones. Call it before the first of them runs.
func (c *Clusters) AppendWorkloadHandler(f discovery.WorkloadHandler) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.handlers = append(c.handlers, f)
	for _, r := range c.made {
		r.AppendWorkloadHandler(f)
	}
}

// join adds a registry, which knows nothing yet. It runs on the worker.
func (c *Clusters) join(r *Registry) {
	at, found := slices.BinarySearchFunc(c.joined, r, before)
	if found {
		return
	}
	c.joined = slices.Insert(slices.Clone(c.joined), at, r)
	r.known.workloads, r.known.exportTo = c.workloads, c.exportTo
	for _, earlier := range c.joined[:at] {
		for path := range earlier.known.objects.Prefix(servicePrefix) {
			r.known.elsewhere = r.known.elsewhere.Set(strings.TrimPrefix(path, servicePrefix), &yes)
		}
	}
}

// yes is the value of known.elsewhere.
var yes = true

// yield says to the registries from a place on who has the endpoints of other registries for a
// Service: the first cluster that has the Service.
func (c *Clusters) yield(from int, key string) {
	has := slices.ContainsFunc(c.joined[:from], func(r *Registry) bool { return r.known.objects.Value(servicePrefix+key) != nil })
	for _, r := range c.joined[from:] {
		if had := r.known.elsewhere.Value(key) != nil; had != has {
			if has {
				r.known.elsewhere = r.known.elsewhere.Set(key, &yes)
			} else {
				r.known.elsewhere = r.known.elsewhere.Delete(key)
			}
			r.marks.services[key] = struct{}{}
		}
		has = has || r.known.objects.Value(servicePrefix+key) != nil
	}
}

// flush publishes the rows of all marked Services. It runs at the end of each task of the worker,
// before the commit that wakes the pusher.
func (c *Clusters) flush() {
	for at, r := range c.joined {
		r.known.build(r.convert, &r.marks)
		for key := range r.marks.services {
			c.yield(at+1, key)
		}
		r.publish()
	}
}
