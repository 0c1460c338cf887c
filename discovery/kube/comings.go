package kube

import (
	"cmp"
	"context"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/portolan-mesh/portolan/cache/kube/cluster"
)

// link is the connection of a registry, and the Secret of the mesh that it comes from, empty for none.
type link struct {
	*cluster.Cluster
	secret string
}

// before orders registries. It depends on nothing but what they follow, so all servers of a mesh
// have one order, whatever came and went.
func before(a, b *Registry) int {
	return cmp.Or(cmp.Compare(a.place, b.place), strings.Compare(a.Cluster(), b.Cluster()))
}

// Remote is like Registry, for a cluster that a Secret of the mesh names. It may be made while others
// run, and its place is behind those of Registry, by its name.
func (c *Clusters) Remote(connection *cluster.Cluster, secret string) *Registry {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.make(&link{connection, secret}, math.MaxInt)
}

// Connections returns the present connections to all clusters, in the order of their registries.
func (c *Clusters) Connections() []*cluster.Cluster {
	var out []*cluster.Cluster
	for _, r := range c.Registries() {
		out = append(out, r.link.Load().Cluster)
	}
	return out
}

// Reconnect has a registry of Remote follow its cluster by another connection, which comes from a
// Secret. What was known stays until the lists of the other connection are taken.
func (r *Registry) Reconnect(connection *cluster.Cluster, secret string) {
	r.link.Store(&link{connection, secret})
	select {
	case r.replaced <- struct{}{}:
	default:
	}
}

// SetFault notes why the kubeconfig that should replace the one in use cannot be used, nil if none should.
// Degraded says it until the next Reconnect.
func (r *Registry) SetFault(err error) { r.link.Load().SetFault(err) }

// followUntilReplaced follows the cluster until ctx ends, or there may be another connection.
func (r *Registry) followUntilReplaced(ctx context.Context) error {
	var waiting sync.WaitGroup
	defer waiting.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	waiting.Go(func() {
		select {
		case <-ctx.Done():
		case <-r.replaced:
			stop()
		}
	})
	by := r.link.Load()
	defer by.CloseIdleConnections()
	return r.follow(ctx, by.Cluster)
}

// restart makes what is known what was last known, until the next lists are taken.
func (r *Registry) restart(ctx context.Context) {
	done := make(chan struct{})
	r.clusters.o.Worker.Post(restarting{r}, func() {
		defer close(done)
		r.drain()
		paths := map[string]bool{}
		for path := range r.known.objects.Keys() {
			paths[path] = true
		}
		for path := range r.aside.Keys() {
			paths[path] = true
		}
		r.inbox.restart(paths)
	})
	select {
	case <-ctx.Done():
	case <-done:
	}
}

// restarting is the key of the task of restart.
type restarting struct{ *Registry }

// restart waits for whole lists, and for the namespaces that count, again. Paths has the objects that
// are known. They were confirmed until now, unless those of a kind were only last known.
func (i *inbox) restart(paths map[string]bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.begun && (len(i.restored) == 0 || i.confirmed.IsZero()) {
		i.confirmed = time.Now()
	}
	i.pending, i.restored, i.listed, i.refused = map[string]object{}, paths, [kinds]bool{}, [kinds]bool{}
	i.selected, i.begun, i.taken = nil, false, [kinds]bool{}
}

// Leave takes back what the registry has told: its rows, its pods, and that it has the endpoints of
// other registries. Call it once Run has ended, on the worker. The registry is of no use any more.
func (r *Registry) Leave() {
	c := r.clusters
	c.mu.Lock()
	c.made = slices.DeleteFunc(slices.Clone(c.made), func(o *Registry) bool { return o == r })
	c.mu.Unlock()
	if !slices.Contains(c.joined, r) {
		return
	}
	changes := map[string]object{}
	for path := range r.known.objects.Keys() {
		changes[path] = nil
	}
	r.apply(changes)
	c.flush()
	c.joined = slices.DeleteFunc(slices.Clone(c.joined), func(o *Registry) bool { return o == r })
}
