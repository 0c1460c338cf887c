package serve

import (
	"context"
	"errors"
	"fmt"

	"github.com/portolan-mesh/portolan/cache/kube/cluster"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest"
	"github.com/portolan-mesh/portolan/cmd/portolan/serve/loglevel"
	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/discovery/kube/remote"
	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/sealing"
	"github.com/portolan-mesh/portolan/storage/secret"
)

// addRemoteClusters follows the clusters that Secrets name, beside those of the flags.
func (s *server) addRemoteClusters(flags []string) {
	s.remote = remote.New(remote.Options{
		Configs: s.source.Handled, Keys: s.secrets.sealer.Keys, Root: s.o.Mesh.GetRootNamespace(), Flags: flags,
		Connect: func(o cluster.Options) (*cluster.Cluster, error) {
			c, err := s.connect(o)
			if err != nil {
				return nil, err
			}
			return useServices.of(c), nil
		},
		Clusters: s.kubernetes, Registries: s.registry, Logger: s.log(loglevel.Registries),
	})
	for _, name := range flags {
		s.flagClusters = s.flagClusters.Set(name, true)
	}
	s.worker.AtTaskEnd(s.remote.Follow)
	s.checks = append(s.checks, rest.Check{Name: "kubernetes", Ready: s.clustersReady, Degraded: s.kubernetes.Degraded})
	s.statuses[discovery.Kubernetes] = func() any { return s.kubernetes.Status() }
}

// clustersReady says which clusters a starting server waits for. A cluster that comes later leaves
// the server ready.
func (s *server) clustersReady() error {
	switch {
	case s.began.Load():
		return nil
	case !s.remote.HasSynced():
		return errors.New("the Secrets of clusters are not read yet")
	}
	return s.kubernetes.Ready()
}

// clusterSealer seals Secrets. It refuses those that name clusters with kubeconfigs that no server
// could use.
type clusterSealer struct {
	*sealing.Sealer
	root string // the root namespace
}

// Seal implements rest.Sealer.
func (c clusterSealer) Seal(ctx context.Context, object, stored *config.Config, trial bool) (*config.Config, error) {
	if spec, ok := object.Spec.(*secret.Spec); ok && object.Namespace == c.root && remote.Labelled(object) {
		if entries, known := c.entries(spec, stored); known {
			if err := remote.Check(entries); err != nil {
				return nil, fmt.Errorf("%w: %w", storage.ErrInvalid, err)
			}
		}
	}
	return c.Sealer.Seal(ctx, object, stored, trial)
}

// entries returns the data that a Secret will have: that of the request, or what is stored of it, if
// this server can open that.
func (c clusterSealer) entries(spec *secret.Spec, stored *config.Config) (map[string][]byte, bool) {
	if spec.InClear() || spec.Sealed == nil {
		return spec.Entries(), true
	}
	if stored == nil {
		return nil, false
	}
	entries, err := c.Open(stored)
	return entries, err == nil
}
