package kube

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-multierror"
	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/proto"
	kubeschema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/cache/kube/cluster"
	"github.com/portolan-mesh/portolan/cache/kube/selection"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/errlist"
	"github.com/portolan-mesh/portolan/storage/health"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/storage/retry"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// The defaults of Options.
const (
	DefaultDiscover = 10 * time.Second
	recallRetry     = time.Second
)

// Options configure a Cache. Cluster and Worker are required.
type Options struct {
	// Cluster is the connection, which the cache alone uses: see cluster.Cluster.Share.
	Cluster *cluster.Cluster
	// Worker runs the handlers.
	Worker *cache.Worker
	// Schemas are the kinds of the mesh. The cache has those of Istio's API among them, and
	// Ingresses with their classes.
	Schemas schema.Set
	// Domain is the domain of all objects (config.Meta).
	Domain string
	// AcceptUnserved accepts objects with security settings that are not served yet. They
	// have no effect.
	AcceptUnserved bool
	// Discover is how often the cache looks for definitions that appear and go; 0 is
	// DefaultDiscover.
	Discover time.Duration
	// Recall returns the objects that the cluster last had (WithHealth), for a start while it is
	// away, and when it confirmed that; zero if nothing was saved. It is called again while it fails.
	// The cache follows nothing before: what a cluster refuses, or does not list yet, is compared with
	// what it had. nil means that nothing was saved.
	Recall func(context.Context) (objects []*config.Config, confirmed time.Time, err error)
	// HistoryMemory is passed to cache.FeedOptions.
	HistoryMemory int64
	// Log gets messages; it may be nil.
	Log *slog.Logger
}

// Cache is a read-only cache.ConfigStoreCache of the objects of a cluster.
type Cache struct {
	*cache.Feed
	o     Options
	kinds []*schema.Schema // those that the cache reads, in the order of the schemas
	lacks []string         // the kinds that the cluster does not have; only discover uses it

	mu      sync.Mutex // guards the fields below, and publishing
	configs pmap.Map[*config.Config]
	// aside are the objects in namespaces that do not count, as selected says; chosen says that
	// this is known.
	aside    pmap.Map[*config.Config]
	health   pmap.Map[*health.Report] // of all objects
	odd      map[string]cache.Problem // by Path, for health that cannot be read
	selected selection.Selection
	chosen   bool
	// pending are the kinds that the first snapshot still waits for.
	pending map[config.GroupVersionKind]bool
	// lost are the kinds whose last request failed.
	lost     map[config.GroupVersionKind]bool
	revision int64
	// fault is why the cluster's kinds are not known; nil if they are.
	fault error
	since time.Time // of fault
	// resources are those being followed, by kind.
	resources map[config.GroupVersionKind]kubeschema.GroupVersionResource
	// recalling says that Recall has not ended, and recalled when the cluster confirmed what it
	// returned; zero for nothing.
	recalling bool
	recalled  time.Time
	// gone says which kinds the cluster no longer has, with their objects.
	gone map[config.GroupVersionKind]cache.Problem
	// writing is why statuses are not written; nil if they are, or nobody writes them.
	writing *cache.Problem
}

var _ cache.ConfigStoreCache = (*Cache)(nil)

// errNotYet is the state of a cache that has had no answer.
var errNotYet = errors.New("the cluster has not answered yet")

// New returns a cache that waits for Run.
func New(o Options) *Cache {
	o.Discover = cmp.Or(o.Discover, DefaultDiscover)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	var kinds []*schema.Schema
	pending := map[config.GroupVersionKind]bool{}
	for _, kind := range o.Schemas.All() {
		if !kind.Internal && (strings.HasSuffix(kind.Group, ".istio.io") || kind.Group == schema.Ingress.Group) {
			kinds = append(kinds, kind)
			pending[kind.GroupVersionKind] = true
		}
	}
	return &Cache{
		Feed: cache.NewFeed(cache.FeedOptions{Worker: o.Worker, Schemas: schema.NewSet(kinds...), HistoryMemory: o.HistoryMemory}),
		o:    o, kinds: kinds, pending: pending, odd: map[string]cache.Problem{}, lost: map[config.GroupVersionKind]bool{}, resources: map[config.GroupVersionKind]kubeschema.GroupVersionResource{},
		gone: map[config.GroupVersionKind]cache.Problem{}, fault: errNotYet, since: time.Now(), recalling: o.Recall != nil,
	}
}

// Run follows the cluster until ctx ends, and then returns nil.
func (c *Cache) Run(ctx context.Context) error {
	if err := c.Seal(); err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return c.o.Cluster.FollowSelection(ctx, c.choose) })
	group.Go(func() error {
		c.recall(ctx)
		return c.discover(ctx)
	})
	return group.Wait()
}

// recall publishes what the cluster last had. It returns early only if ctx ends.
func (c *Cache) recall(ctx context.Context) {
	for c.o.Recall != nil {
		objects, confirmed, err := c.o.Recall(ctx)
		if err == nil {
			c.remember(objects, confirmed)
			return
		}
		if retry.Sleep(ctx, recallRetry) != nil {
			return
		}
	}
}

func (c *Cache) remember(objects []*config.Config, confirmed time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.recalling, c.recalled = false, confirmed; confirmed.IsZero() {
		return
	}
	for _, object := range objects {
		if c.o.Schemas.Kind(object.GroupVersionKind) != nil {
			c.put(object.Key().Path(), object)
		}
	}
	c.o.Log.Info("the objects that a cluster last had are served", "cluster", c.o.Cluster.Name(), "objects", len(objects), "known", confirmed.UTC().Format(time.RFC3339))
	c.publish()
}

// publish publishes the objects. The caller holds mu.
func (c *Cache) publish() {
	content := cache.Content{Configs: c.configs, Health: c.health}
	if was := c.Snapshot(); was != nil && was.Content() == content { // nothing differs
		return
	}
	c.revision++
	c.Publish(c.Snapshot().Next(c.revision, content))
}

// settled notes that the first snapshot need not wait for a kind any more. The caller
// holds mu.
func (c *Cache) settled(kind *schema.Schema) {
	delete(c.pending, kind.GroupVersionKind)
	c.publishWhole()
}

// publishWhole publishes, unless a kind or the selection of namespaces is still waited for. The
// caller holds mu.
func (c *Cache) publishWhole() {
	if c.whole() {
		c.publish()
	}
}

// whole says whether no kind is waited for, nor the selection of namespaces: until then the snapshot is
// what was recalled. The caller holds mu.
func (c *Cache) whole() bool { return len(c.pending) == 0 && c.chosen }

// handle takes a batch of a kind. begun says that it is the first one of a Follow, which
// has all objects.
func (c *Cache) handle(kind *schema.Schema, b cluster.Batch[*config.Config], begun bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if begun {
		c.drop(kind, namesOf(b))
	}
	for _, change := range b.Changes {
		path := pathOf(kind, change.Name)
		if was := c.known(path); !change.HasNew && was != nil || change.HasNew && !same(was, change.New) {
			c.put(path, change.New)
		}
	}
	if b.Listed {
		delete(c.pending, kind.GroupVersionKind)
	}
	c.publishWhole()
}

// pathOf returns the Path of an object of a kind.
func pathOf(kind *schema.Schema, name types.NamespacedName) string {
	return config.Key{Kind: kind.GroupVersionKind, Namespace: name.Namespace, Name: name.Name}.Path()
}

// same says whether an object is as before, with its health. No other part of a status counts.
func same(was, is *config.Config) bool {
	return was != nil && was.ResourceVersion == is.ResourceVersion && was.UID == is.UID && proto.Equal(was.Status, is.Status)
}

// namesOf returns the names of all objects in a first list, those with a fault included.
func namesOf(b cluster.Batch[*config.Config]) map[types.NamespacedName]bool {
	out := make(map[types.NamespacedName]bool, len(b.Changes)+len(b.Refused))
	for _, change := range b.Changes {
		out[change.Name] = true
	}
	for _, name := range b.Refused {
		out[name] = true
	}
	return out
}

// drop removes the objects of a kind but some, and says whether there were any. The
// caller holds mu.
func (c *Cache) drop(kind *schema.Schema, but map[types.NamespacedName]bool) (dropped bool) {
	for _, all := range []pmap.Map[*config.Config]{c.configs, c.aside} {
		for path, object := range all.Prefix(config.KindPath(kind.GroupVersionKind)) {
			if !but[types.NamespacedName{Namespace: object.Namespace, Name: object.Name}] {
				c.put(path, nil)
				dropped = true
			}
		}
	}
	return dropped
}

// setState takes why a kind is not followed. Without a right to a kind, or its definition,
// the others are served.
func (c *Cache) setState(kind *schema.Schema, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if errors.Is(err, cluster.ErrDenied) || errors.Is(err, cluster.ErrAbsent) {
		c.settled(kind)
	}
	if err == nil {
		delete(c.lost, kind.GroupVersionKind)
	} else {
		c.lost[kind.GroupVersionKind] = true
	}
}

func (c *Cache) setFault(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if (err == nil) != (c.fault == nil) {
		c.since = time.Now()
	}
	c.fault = err
}

// Problems returns the problems of objects, in the order of their names, then workloads whose health
// cannot be read and kinds that the cluster no longer has, and last why statuses are not written.
func (c *Cache) Problems() []cache.Problem {
	out := c.o.Cluster.Problems()
	c.mu.Lock()
	defer c.mu.Unlock()
	out = append(out, c.oddHealth()...)
	for _, kind := range c.kinds {
		if p, gone := c.gone[kind.GroupVersionKind]; gone {
			out = append(out, p)
		}
	}
	if c.writing != nil {
		out = append(out, *c.writing)
	}
	return out
}

// setWriting takes why statuses are not written, nil if they are.
func (c *Cache) setWriting(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	was := c.writing
	switch {
	case err == nil:
		c.writing = nil
	case was == nil || was.Message != "statuses are not written: "+err.Error():
		c.writing = &cache.Problem{Where: "cluster " + c.o.Cluster.Name(), Message: "statuses are not written: " + err.Error(), Since: time.Now(), Warning: true}
		c.o.Log.Warn("statuses of objects of a cluster are not written", "cluster", c.o.Cluster.Name(), "err", err)
	}
}

// setResource notes in which version a kind is followed; the zero value is none.
func (c *Cache) setResource(kind *schema.Schema, resource kubeschema.GroupVersionResource) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.resources[kind.GroupVersionKind] = resource
}

// resourceOf returns the resource of a kind in any version; false if the kind is not followed.
func (c *Cache) resourceOf(kind config.GroupVersionKind) (kubeschema.GroupVersionResource, bool) {
	known := c.o.Schemas.Kind(kind)
	if known == nil {
		return kubeschema.GroupVersionResource{}, false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	resource := c.resources[known.GroupVersionKind]
	return resource, resource.Version != ""
}

// Degraded says why the content may be old, nil if it is not: each reason once. It begins with the
// time of the content if that is what was recalled. Faults of objects do not count: Problems has them.
func (c *Cache) Degraded() error {
	c.mu.Lock()
	recalled, at := !c.whole(), c.recalled
	c.mu.Unlock()
	err := c.unfollowed()
	if err != nil && recalled && !at.IsZero() {
		return fmt.Errorf("what was known of it at %s is served: %w", at.UTC().Format(time.RFC3339), err)
	}
	return err
}

// unfollowed says why the cluster, or a part of it, is not followed; nil if it is.
func (c *Cache) unfollowed() error {
	c.mu.Lock()
	fault, since := c.fault, c.since
	c.mu.Unlock()
	followed := c.o.Cluster.Degraded()
	switch {
	case fault == nil:
		return followed
	case followed != nil && strings.Contains(followed.Error(), fault.Error()):
		return followed
	}
	fault = fmt.Errorf("since %s: %w", since.UTC().Format(time.RFC3339), fault)
	if followed == nil {
		return fault
	}
	return &multierror.Error{Errors: []error{fault, followed}, ErrorFormat: errlist.OneLine}
}

// Whole says whether everything in the cluster is served: it is followed, and no object
// has a fault.
func (c *Cache) Whole() bool { return c.Degraded() == nil && len(c.o.Cluster.Problems()) == 0 }

// Confirmed says whether every kind was listed. The newest snapshot is then what the cluster has in the
// namespaces that count, or had at LostSince.
func (c *Cache) Confirmed() bool {
	c.mu.Lock()
	told := c.whole()
	c.mu.Unlock()
	return told && c.Snapshot() != nil && c.o.Cluster.Synced()
}

// LostSince returns since when the cluster, or any kind in it, is not followed; zero while all are.
func (c *Cache) LostSince() time.Time {
	lost := c.o.Cluster.LostSince()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fault != nil && (lost.IsZero() || c.since.Before(lost)) {
		return c.since
	}
	return lost
}

// Reading says whether the first objects are on the way: those that the cluster last had, or those of
// a cluster that has answered.
func (c *Cache) Reading() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.recalling {
		return true
	}
	if c.fault != nil {
		return false
	}
	for kind := range c.pending {
		if c.lost[kind] {
			return false
		}
	}
	return len(c.pending) > 0
}

// Place returns the command by which kubectl shows an object of the cluster, for users.
func (c *Cache) Place(key config.Key) string {
	kind := c.o.Schemas.Kind(key.Kind)
	if kind == nil || c.Snapshot().Get(key) == nil {
		return ""
	}
	return PlaceOf(key, kind.Plural+"."+kind.Group)
}

// PlaceOf returns the command by which kubectl shows an object of a resource, for users.
func PlaceOf(key config.Key, resource string) string {
	in := ""
	if key.Namespace != "" {
		in = "-n " + key.Namespace + " "
	}
	return fmt.Sprintf("kubectl get %s%s %s", in, resource, key.Name)
}
