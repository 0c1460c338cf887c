package clustersecret

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/cache/kube/cluster"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/pmap"
)

// DefaultPatience is the default of Options.Patience.
const DefaultPatience = time.Second

// Source names the secrets of a cluster that are read.
type Source struct {
	// Cluster is the connection, which the reader alone uses: see cluster.Cluster.Share.
	Cluster *cluster.Cluster
	// Namespaces are those whose secrets are read. A secret is for proxies of the namespace of
	// the same name.
	Namespaces []string
}

// Options configure a Reader. Worker is required.
type Options struct {
	// Sources are in the order in which they count: of a secret in several, the first is used.
	Sources []Source
	// Worker gets a task after each change. What commits at its end finds the change in Set.
	Worker *cache.Worker
	// Patience is how long HasSynced waits for clusters; 0 is DefaultPatience.
	Patience time.Duration
}

// Reader reads the secrets. All methods may be called from any goroutine.
type Reader struct {
	o      Options
	sealer sealer
	synced atomic.Bool

	mu   sync.Mutex // guards the fields below
	held []pmap.Map[*config.Config]
	// awaited are the places that neither were listed nor have refused.
	awaited map[place]bool
	waited  bool // Patience is over
	// unread are the places that were never listed.
	unread map[place]bool
	faults map[place]string
	set    Set
}

// place is a namespace of a source.
type place struct {
	source    int
	namespace string
}

// New returns a Reader that waits for Run.
func New(o Options) *Reader {
	o.Patience = cmp.Or(o.Patience, DefaultPatience)
	r := &Reader{o: o, sealer: newSealer(), held: make([]pmap.Map[*config.Config], len(o.Sources)), awaited: map[place]bool{}, unread: map[place]bool{}, faults: map[place]string{}}
	r.set = NewSet(r.sealer.ring)
	for _, p := range r.places() {
		r.awaited[p], r.unread[p] = true, true
		r.set = r.set.WithUnread(p.namespace, true)
	}
	r.synced.Store(len(r.awaited) == 0)
	return r
}

// places returns all places in the order in which they count.
func (r *Reader) places() (out []place) {
	for i, source := range r.o.Sources {
		for _, namespace := range source.Namespaces {
			out = append(out, place{i, namespace})
		}
	}
	return out
}

// Run follows the secrets until ctx ends. While a cluster is away, its secrets stay.
func (r *Reader) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, p := range r.places() {
		group.Go(func() error {
			return cluster.Follow(ctx, r.o.Sources[p.source].Cluster, cluster.Following[*config.Config]{
				Resource: corev1.SchemeGroupVersion.WithResource("secrets"), Kind: "Secret", Namespace: p.namespace, Fields: fields,
				Convert: r.sealer.convert,
				Handle:  func(b cluster.Batch[*config.Config]) { r.handle(p, b) },
				State:   func(err error) { r.setFault(p, err) },
			})
		})
	}
	if !r.HasSynced() {
		group.Go(func() error {
			patience := time.NewTimer(r.o.Patience)
			defer patience.Stop()
			select {
			case <-ctx.Done():
			case <-patience.C:
				r.change(func() { r.waited = true })
			}
			return nil
		})
	}
	return group.Wait()
}

// change changes the state, and posts the task that takes it over.
func (r *Reader) change(by func()) {
	r.mu.Lock()
	by()
	settled := r.waited || len(r.awaited) == 0
	r.mu.Unlock()
	r.o.Worker.Post(r, func() {
		if settled {
			r.o.Worker.Then(func() { r.synced.Store(true) })
		}
	})
}

func (r *Reader) handle(p place, b cluster.Batch[*config.Config]) {
	r.change(func() {
		if b.Listed {
			delete(r.awaited, p)
			delete(r.unread, p)
			r.set = r.set.WithUnread(p.namespace, slices.ContainsFunc(r.places(), func(o place) bool { return o.namespace == p.namespace && r.unread[o] }))
		}
		for _, c := range b.Changes {
			key := c.Name.String()
			was := r.held[p.source].Value(key)
			switch {
			case r.sealer.same(was, c.New):
				continue
			case c.New == nil:
				r.held[p.source] = r.held[p.source].Delete(key)
			default:
				r.held[p.source] = r.held[p.source].Set(key, c.New)
			}
			r.choose(key)
		}
	})
}

// choose puts the secret of the first source that has one into the set. The caller holds mu.
func (r *Reader) choose(key string) {
	var first *config.Config
	for _, held := range r.held {
		if first = held.Value(key); first != nil {
			break
		}
	}
	r.set = r.set.With(key, first)
}

// setFault takes why a place is not read, nil if it is. What was read of it stays.
func (r *Reader) setFault(p place, err error) {
	r.change(func() {
		if err == nil {
			delete(r.faults, p)
		} else {
			r.faults[p] = fmt.Sprintf("cluster %s: %v", r.o.Sources[p.source].Cluster.Name(), err)
		}
		if errors.Is(err, cluster.ErrDenied) {
			delete(r.awaited, p)
		}
		var all []string
		for _, other := range r.places() {
			if text := r.faults[other]; text != "" && other.namespace == p.namespace {
				all = append(all, text)
			}
		}
		r.set = r.set.WithFault(p.namespace, strings.Join(all, "; "))
	})
}

// Set returns what is known now.
func (r *Reader) Set() Set {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.set
}

// HasSynced says whether all secrets that can be read were committed. A cluster that does not
// answer is not waited for longer than Patience.
func (r *Reader) HasSynced() bool { return r.synced.Load() }

// Degraded says which clusters are not read, and why; nil if all are.
func (r *Reader) Degraded() error {
	var out []error
	for i, source := range r.o.Sources {
		if err := r.degraded(i); err != nil {
			out = append(out, fmt.Errorf("secrets of cluster %s: %w", source.Cluster.Name(), err))
		}
	}
	return errors.Join(out...)
}

// degraded says why a source is not read, and what becomes of its secrets; nil if it is read.
func (r *Reader) degraded(source int) error {
	err := r.o.Sources[source].Cluster.Degraded()
	if err == nil {
		return nil
	}
	var unread []string
	r.mu.Lock()
	for _, namespace := range r.o.Sources[source].Namespaces {
		if r.unread[place{source, namespace}] {
			unread = append(unread, namespace)
		}
	}
	r.mu.Unlock()
	const kept = "gateways that have them keep them, others do without"
	switch len(unread) {
	case 0:
		return fmt.Errorf("what was read of them is served: %w", err)
	case len(r.o.Sources[source].Namespaces):
		return fmt.Errorf("none was read since this server started, %s: %w", kept, err)
	}
	return fmt.Errorf("those of the namespaces %s were not read since this server started, %s: %w", strings.Join(unread, ", "), kept, err)
}

// Status is the state of a source.
type Status struct {
	// Cluster is its name, and Server the URL of its API server.
	Cluster, Server string
	Namespaces      []string
	// Secrets are those that proxies can use, by namespace and name.
	Secrets pmap.Map[*config.Config]
	// Earlier are the keys of Secrets that an earlier source has too, and which counts.
	Earlier []string
	// Degraded says why the secrets may be old or missing; nil if they are not.
	Degraded error
	// Problems say why some secrets are not served as the cluster has them.
	Problems []cache.Problem
}

// Status returns the states of the sources, in their order.
func (r *Reader) Status() []Status {
	r.mu.Lock()
	held, set := slices.Clone(r.held), r.set
	r.mu.Unlock()
	var out []Status
	for i, source := range r.o.Sources {
		one := Status{
			Cluster: source.Cluster.Name(), Server: source.Cluster.Server(), Namespaces: source.Namespaces, Secrets: held[i],
			Degraded: r.degraded(i), Problems: source.Cluster.Problems(),
		}
		for key, secret := range held[i].All() {
			if set.secrets.Value(key) != secret {
				one.Earlier = append(one.Earlier, key)
			}
		}
		out = append(out, one)
	}
	return out
}
