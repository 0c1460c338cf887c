package serve

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"strconv"
	"time"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/cmd/portolan/serve/loglevel"
	"github.com/portolan-mesh/portolan/discovery/identity/authority"
	"github.com/portolan-mesh/portolan/discovery/registration"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// patience is how long a new machine may take for its listeners, before others may send to it.
const patience = 5 * time.Second

// addRegistrar creates what registers the proxies that ask for it.
func (s *server) addRegistrar() error {
	s.registrar = registration.New(registration.Options{
		Server: s.id, Store: s.configs, Health: s.configs, Synced: s.source.HasSynced, Unproved: s.mayRegisterUnproved,
		Entry: func(key config.Key) *config.Config { return s.mirror.Snapshot().Stored(key) },
		Group: func(key config.Key) *config.Config { return s.source.Snapshot().Get(key) },
		Entries: func(namespace string) iter.Seq[*config.Config] {
			return s.mirror.Snapshot().List(schema.WorkloadEntry, namespace)
		},
		Await: func(ctx context.Context, version string) error {
			revision, err := strconv.ParseInt(version, 10, 64)
			if err == nil {
				_, err = s.mirror.Await(ctx, revision)
			}
			return err
		},
		Others: func() (n int) {
			for _, proxies := range s.proxies.replicas.proxiesOfOthers() {
				n += proxies
			}
			return n
		},
		TTL: s.o.MachineLease, Patience: patience, Logger: s.log(loglevel.Registries), Registerer: s.metrics,
	})
	changed := func(old, now *config.Config, _ cache.Event) { s.registrar.Changed(cmp.Or(now, old).Key()) }
	return errors.Join(s.source.RegisterEventHandler(schema.WorkloadEntry, changed), s.source.RegisterEventHandler(schema.WorkloadGroup, changed))
}

// mayRegisterUnproved returns why a proxy that has proved nothing may not be registered, nil if it
// may: while there is nothing yet by which it could prove who it is.
func (s *server) mayRegisterUnproved() error {
	held := s.mirror.Snapshot().Stored(config.Key{Kind: schema.Secret, Namespace: s.o.Mesh.GetRootNamespace(), Name: authority.SecretName})
	switch {
	case s.o.Authority != nil || s.o.TLS.ClientCA != "" || held != nil:
		return errors.New("it has proved no identity, and the mesh has a certificate authority: have it connect with a certificate (portolan bootstrap --tls)")
	case s.keeper.HasUsers():
		return errors.New("it has proved no identity, and the mesh has users: have it connect with a certificate (portolan bootstrap --tls)")
	}
	return nil
}
