package serve

import (
	"encoding/json"
	"net/http"
	"strings"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest"
	"github.com/portolan-mesh/portolan/cmd/portolan/serve/loglevel"
	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/discovery/aggregate"
	"github.com/portolan-mesh/portolan/discovery/consul"
	"github.com/portolan-mesh/portolan/discovery/filesd"
	"github.com/portolan-mesh/portolan/discovery/kube"
	"github.com/portolan-mesh/portolan/discovery/lastknown"
	"github.com/portolan-mesh/portolan/discovery/serviceentry"
	"github.com/portolan-mesh/portolan/xds/mesh"
)

// If several registries could answer a query the first does.
func (s *server) addRegistries() error {
	s.registry = aggregate.New(aggregate.Options{XDS: s.xds, Worker: s.worker})
	entries := serviceentry.New(serviceentry.Options{
		XDS: s.xds, Worker: s.worker, Configs: s.source,
		DefaultExportTo: func(configs *cache.Snapshot) []string {
			return mesh.MeshConfigAt(s.o.Mesh, configs).GetDefaultServiceExportTo()
		},
		TrustDomain: s.o.Mesh.GetTrustDomain(),
		Off:         serviceentry.Switches{SelectInstances: s.o.NoSelectPods, OfferWorkloadEntries: s.o.NoSelectWorkloadEntries},
	})
	if err := s.addRegistry(entries, nil); err != nil {
		return err
	}
	if err := s.addClusters(entries); err != nil {
		return err
	}
	if s.o.Consul != nil {
		if err := s.addConsul(*s.o.Consul); err != nil {
			return err
		}
	}
	if s.o.Endpoints != nil {
		if err := s.addEndpoints(*s.o.Endpoints); err != nil {
			return err
		}
	}
	s.worker.AtTaskEnd(s.modules.Follow)
	s.worker.AtTaskEnd(s.xds.Commit) // after the hooks of the registries
	return nil
}

// addClusters adds a registry for each cluster, which select the workloads of the entries, and the
// other way round. Those of the flags are there from the start.
func (s *server) addClusters(entries *serviceentry.Store) error {
	s.kubernetes = kube.New(kube.Options{
		XDS: s.xds, Worker: s.worker, Configs: s.source, Domain: s.o.Mesh.Domain, TrustDomain: s.o.Mesh.GetTrustDomain(),
		DefaultExportTo: func(configs *cache.Snapshot) []string {
			return mesh.MeshConfigAt(s.o.Mesh, configs).GetDefaultServiceExportTo()
		},
		Memory: lastknown.In(s.configs, nil), Logger: s.log(loglevel.Registries),
	})
	entries.ExchangeWorkloads(s.kubernetes)
	var flags []string
	for _, o := range s.o.Clusters {
		connection, err := s.cluster(o, useServices)
		if err != nil {
			return err
		}
		if err := s.registry.Add(s.kubernetes.Registry(connection)); err != nil {
			return err
		}
		flags = append(flags, connection.Name())
	}
	s.addRemoteClusters(flags)
	return nil
}

func (s *server) addConsul(o consul.Options) error {
	o.XDS, o.Worker, o.Memory = s.xds, s.worker, lastknown.In(s.configs, nil)
	o.TrustDomain = s.o.Mesh.GetTrustDomain()
	o.Registerer, o.Logger = s.metrics, s.log(loglevel.Registries)
	r, err := consul.New(o)
	if err != nil {
		return err
	}
	return s.addRegistry(r, func() any { return r.Status() })
}

func (s *server) addEndpoints(o filesd.Options) error {
	o.XDS, o.Worker, o.Registerer, o.Logger = s.xds, s.worker, s.metrics, s.log(loglevel.Registries)
	o.TrustDomain = s.o.Mesh.GetTrustDomain()
	r, err := filesd.New(o)
	if err != nil {
		return err
	}
	return s.addRegistry(r, func() any { return r.Status() })
}

// addRegistry adds a registry, and its readiness if it reports one. It serves the result of
// status at StatusPath, unless status is nil.
func (s *server) addRegistry(r discovery.Instance, status func() any) error {
	if c, ok := r.(interface {
		Ready() error
		Degraded() error
	}); ok {
		s.checks = append(s.checks, rest.Check{Name: strings.ToLower(string(r.Provider())), Ready: c.Ready, Degraded: c.Degraded})
	}
	if status != nil {
		s.statuses[r.Provider()] = status
	}
	return s.registry.Add(r)
}

// StatusPath returns the path, in the config API, of the status of a provider's registry.
func StatusPath(p discovery.Provider) string {
	return "/apis/portolan.io/v1/" + strings.ToLower(string(p))
}

func serveStatus(status func() any) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		if request.Method != http.MethodGet && request.Method != http.MethodHead {
			w.Header().Set("Allow", "GET")
			http.Error(w, "use GET", http.StatusMethodNotAllowed)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(status()) // fails only if the client is gone
	})
}
