package memory_test

import (
	"testing"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/discovery/memory"
	"github.com/portolan-mesh/portolan/discovery/registrytest"
	"github.com/portolan-mesh/portolan/storage/host"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	registrytest.Run(t, func(_ *testing.T, xds discovery.XDSUpdater, worker *cache.Worker) registrytest.Source {
		r := memory.New(memory.Options{Cluster: "m1", XDS: xds, Worker: worker})
		var offered []registrytest.Service
		return registrytest.Source{
			Registry: r, Provider: discovery.Memory, Cluster: "m1",
			Offer: func(services ...registrytest.Service) {
				gone := offered
				offered = services
				for _, s := range services {
					offer(r, s)
				}
				for _, s := range gone {
					if !contains(services, s.Name) {
						r.RemoveService(hostOf(s), s.Namespace)
					}
				}
			},
		}
	})
}

func hostOf(s registrytest.Service) host.Name { return host.Name(s.Name + ".example") }

func contains(services []registrytest.Service, name string) bool {
	for _, s := range services {
		if s.Name == name {
			return true
		}
	}
	return false
}

func offer(r *memory.Registry, s registrytest.Service) {
	r.AddService(&discovery.Service{
		Hostname: hostOf(s), Address: discovery.UnspecifiedIP,
		Ports:      []discovery.Port{{Name: "http", Number: s.Port, Protocol: discovery.HTTP}},
		Attributes: discovery.Attributes{Name: s.Name, Namespace: s.Namespace},
	})
	var endpoints []*discovery.Endpoint
	for _, i := range s.Instances {
		endpoints = append(endpoints, &discovery.Endpoint{
			Address: i.Address, Port: s.Port, ServicePortName: "http", Weight: 1, Labels: i.Labels, Namespace: s.Namespace,
		})
	}
	r.SetEndpoints(hostOf(s), s.Namespace, endpoints...)
}
