package serve

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/cache/aggregate"
	"github.com/portolan-mesh/portolan/cache/kube"
	"github.com/portolan-mesh/portolan/cache/kube/cluster"
	"github.com/portolan-mesh/portolan/cmd/portolan/serve/loglevel"
	"github.com/portolan-mesh/portolan/discovery/lastknown"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/cores"
	"github.com/portolan-mesh/portolan/storage/etcd"
	"github.com/portolan-mesh/portolan/storage/etcd/election"
	"github.com/portolan-mesh/portolan/storage/health"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// KubeScheme begins the names of clusters among the sources of configuration.
const KubeScheme = "kube://"

// clusterSource is a cluster of Kubernetes as a source of configuration.
type clusterSource struct {
	*kube.Cache
	name string // of the source

	mu       sync.Mutex // guards the fields below
	saved    savedItems[*config.Config]
	reported pmap.Map[*health.Report] // those of saved
}

// clusterUse is what a server reads of clusters.
type clusterUse struct {
	prefix string // begins the names of its sources
	page   string // has the role that its account needs
}

var (
	useObjects  = clusterUse{KubeScheme, "docs/tasks/read-objects-of-a-cluster.md"}
	useServices = clusterUse{clusterServices, "docs/tasks/one-mesh-over-a-cluster-and-machines.md"}
	useSecrets  = clusterUse{clusterSecrets, "docs/tasks/secrets-of-a-cluster.md"}
)

// of returns the use of a cluster as a user of its connection.
func (u clusterUse) of(c *cluster.Cluster) *cluster.Cluster {
	return c.Share(cluster.User{Source: u.prefix + c.Name(), Page: u.page})
}

// cluster returns a connection to a cluster for one user of it. All users of a kubeconfig
// and a context have the same connection.
func (s *server) cluster(o cluster.Options, use clusterUse) (*cluster.Cluster, error) {
	ref := o.Name + "=" + o.File + "#" + o.Context
	if known := s.clusters[ref]; known != nil {
		return use.of(known), nil
	}
	c, err := s.connect(o)
	if err != nil {
		return nil, err
	}
	if s.clusters == nil {
		s.clusters = map[string]*cluster.Cluster{}
	}
	s.clusters[ref] = c
	return use.of(c), nil
}

// connect makes a connection that goes by the discoverySelectors of the mesh.
func (s *server) connect(o cluster.Options) (*cluster.Cluster, error) {
	o.Log, o.Selectors, o.RecallNamespaces = s.log(loglevel.Cache), s.selectors.Selectors, s.recallNamespaces
	return cluster.New(o)
}

// kubeSources returns the sources for the clusters, each named by the name of the cluster.
func (s *server) kubeSources() ([]aggregate.Source, error) {
	var out []aggregate.Source
	memory := lastknown.In(s.configs, nil)
	for _, o := range s.o.ConfigKube {
		c, err := s.cluster(o, useObjects)
		if err != nil {
			return nil, err
		}
		one := &clusterSource{name: KubeScheme + c.Name()}
		one.Cache = kube.New(kube.Options{
			Cluster: c, Worker: cache.NewWorker(), Schemas: s.configs.Schemas(), Domain: s.o.Mesh.Domain,
			AcceptUnserved: s.o.AcceptUnserved, HistoryMemory: s.o.HistoryMemory, Log: s.log(loglevel.Cache),
			Recall: func(ctx context.Context) ([]*config.Config, time.Time, error) { return one.recall(ctx, memory, s) },
		})
		s.kube = append(s.kube, one)
		out = append(out, aggregate.Source{Name: one.name, Cache: one.Cache, Kind: "cluster", Where: c.Server(), Place: one.Place, Behind: true})
	}
	return out, nil
}

// savedClusters returns the clusters as sources whose last content is saved.
func (s *server) savedClusters() []lastknown.Source {
	var out []lastknown.Source
	for _, c := range s.kube {
		out = append(out, c)
	}
	return out
}

// SourceName implements lastknown.Source.
func (c *clusterSource) SourceName() string {
	return "config-kube/" + url.PathEscape(strings.TrimPrefix(c.name, KubeScheme))
}

// savedObject is an object, with its health, as an item of what is saved.
type savedObject config.Config

// Value implements lastknown.Item.
func (o *savedObject) Value() ([]byte, error) {
	return etcd.EncodeSourceObject((*config.Config)(o))
}

// Known implements lastknown.Source.
func (c *clusterSource) Known() (lastknown.Known, bool) {
	if !c.Confirmed() {
		return lastknown.Known{}, false
	}
	until, now := c.LostSince(), c.Snapshot()
	c.mu.Lock()
	defer c.mu.Unlock()
	for change := range pmap.Diff(c.reported, now.Health()) {
		of := cmp.Or(change.New, change.Old)
		c.saved.renew(config.Key{Kind: schema.WorkloadEntry, Namespace: of.Namespace, Name: of.Name}.Path())
	}
	c.reported = now.Health()
	return lastknown.Known{Until: until, Items: c.saved.of(now.Configs(), func(o *config.Config) lastknown.Item {
		if o.Kind == schema.WorkloadEntry.Kind {
			o = kube.WithHealth(o, now.Health().Value(health.Path(o.Namespace, o.Name)))
		}
		return (*savedObject)(o)
	})}, true
}

// savedItems are the values of a map as items of what is saved.
type savedItems[V comparable] struct {
	from  pmap.Map[V]
	items pmap.Map[lastknown.Item]
}

// of returns the items for a map. It makes those anew whose values differ from the last call.
func (s *savedItems[V]) of(now pmap.Map[V], item func(V) lastknown.Item) pmap.Map[lastknown.Item] {
	for change := range pmap.Diff(s.from, now) {
		if change.HasNew {
			s.items = s.items.Set(change.Key, item(change.New))
		} else {
			s.items = s.items.Delete(change.Key)
		}
	}
	s.from = now
	return s.items
}

// renew has of make the item of a key anew.
func (s *savedItems[V]) renew(key string) {
	s.from, s.items = s.from.Delete(key), s.items.Delete(key)
}

// recall returns the objects that were saved, and when the cluster confirmed them; zero if no content was
// saved.
func (c *clusterSource) recall(ctx context.Context, memory lastknown.Memory, s *server) (objects []*config.Config, confirmed time.Time, err error) {
	recalled, err := memory.Recall(ctx, c.SourceName())
	if err != nil {
		return nil, time.Time{}, err
	}
	paths := slices.Sorted(maps.Keys(recalled.Items))
	values := make([][]byte, len(paths))
	for i, path := range paths {
		values[i] = recalled.Items[path]
	}
	clear(recalled.Items) // so that the memory of a value is free once its object is there
	objects = make([]*config.Config, len(paths))
	cores.Each(len(paths), func(i int) {
		object, err := etcd.DecodeSourceObject(paths[i], values[i], s.configs.Schemas(), s.o.Mesh.Domain)
		if values[i] = nil; err != nil { // a newer server may have saved it
			s.log(loglevel.Cache).Warn("an object that was saved of a cluster is left out", "cluster", c.name, "path", paths[i], "err", err)
			return
		}
		objects[i] = object
	})
	objects = slices.DeleteFunc(objects, func(o *config.Config) bool { return o == nil })
	return objects, recalled.Confirmed, nil
}

// clusterStatusWriter writes conditions of objects into their clusters.
type clusterStatusWriter struct {
	clusters []*clusterSource
	snapshot func() *cache.Snapshot
}

// run implements job. What it writes is the same on every server, so nothing is lost if it
// overlaps with the next leader.
func (w *clusterStatusWriter) run(ctx context.Context, _ *election.Leader) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, c := range w.clusters {
		group.Go(func() error {
			if err := (&kube.StatusWriter{Cache: c.Cache, Source: c.name, Snapshot: w.snapshot}).Run(ctx); err != nil {
				return fmt.Errorf("statuses of %s: %w", c.name, err)
			}
			return nil
		})
	}
	return group.Wait()
}
