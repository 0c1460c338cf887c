package serve

import (
	"context"
	"errors"
	"strconv"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/discovery/identity/authority"
	"github.com/portolan-mesh/portolan/discovery/registration"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// addRegistrar creates what registers the proxies that ask for it.
func (s *server) addRegistrar() error {
	s.registrar = registration.New(registration.Options{
		Server: s.id, Store: s.configs, Synced: s.source.HasSynced, Unproved: s.mayRegisterUnproved,
		Entry: func(key config.Key) *config.Config { return s.mirror.Snapshot().Stored(key) },
		Group: func(key config.Key) *config.Config { return s.source.Snapshot().Get(key) },
		Await: func(ctx context.Context, version string) error {
			revision, err := strconv.ParseInt(version, 10, 64)
			if err == nil {
				_, err = s.mirror.Await(ctx, revision)
			}
			return err
		},
		Logger: s.logger, Registerer: s.metrics,
	})
	wake := func(_, _ *config.Config, _ cache.Event) { s.registrar.Wake() }
	return errors.Join(s.source.RegisterEventHandler(schema.WorkloadEntry, wake), s.source.RegisterEventHandler(schema.WorkloadGroup, wake))
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
