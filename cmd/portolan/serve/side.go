package serve

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/cache/mirror"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest"
	"github.com/portolan-mesh/portolan/cmd/portolan/serve/loglevel"
	"github.com/portolan-mesh/portolan/storage/etcd"
	"github.com/portolan-mesh/portolan/storage/etcd/election"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// sideMemory bounds the memory for past states of the side kinds.
const sideMemory = 16 << 20

// side is the store of the kinds of schema.Side, within the etcd of the mesh's store, and its
// cache.
type side struct {
	store  *etcd.Store
	cache  *mirror.Cache
	worker *cache.Worker
}

// addSide makes the store of the kinds beside the mesh's.
func (s *server) addSide() (err error) {
	options := s.store.limits
	options.Schemas, options.WithoutHistory, options.Log = schema.Side(), true, s.log(loglevel.Store)
	client := etcd.Within(s.store.client, etcd.ObjectsPrefix)
	if s.side.store, err = etcd.New(client, options); err != nil {
		return err
	}
	s.side.worker = cache.NewWorker()
	s.side.cache = mirror.New(client, mirror.Options{
		Worker: s.side.worker, Schemas: schema.Side(), Store: s.side.store, Expendable: true, HistoryMemory: sideMemory, Log: s.log(loglevel.Cache).With("store", "side"),
	})
	return nil
}

// lastingNamespaces returns the namespaces that there always are: the root namespace of the mesh,
// and the one that clients take if they name none.
func (s *server) lastingNamespaces() []string {
	return []string{s.o.Mesh.GetRootNamespace(), metav1.NamespaceDefault}
}

// backend returns what the config API serves.
func (s *side) backend() *rest.Backend { return &rest.Backend{Store: s.store, Cache: s.cache} }

// run keeps the cache. It begins when the store of the mesh is there, since a server may not be
// allowed to begin one.
func (s *side) run(ctx context.Context, mesh configCache) error {
	if _, err := mesh.Await(ctx, 0); err != nil {
		return nil // ctx has ended
	}
	return s.cache.Run(ctx)
}

// fenced returns the store for the jobs of a leader.
func (s *side) fenced(leader *election.Leader) *etcd.Store {
	return s.store.Fenced(etcd.Within(leader.Client(), etcd.ObjectsPrefix))
}
