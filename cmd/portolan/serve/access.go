package serve

import (
	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/discovery/access"
)

// newKeeper makes what authenticates and authorizes at the config API. It goes by the objects
// of the store alone: no other source says who may do what.
func (s *server) newKeeper() *access.Keeper {
	return access.NewKeeper(access.Options{
		Snapshot: func() *cache.Snapshot { return s.mirror.Snapshot() },
		Schemas:  s.configs.Schemas(), Root: s.o.Mesh.GetRootNamespace(), AnonymousLoopback: s.o.AnonymousLoopback,
	})
}
