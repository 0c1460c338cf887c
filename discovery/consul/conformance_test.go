package consul_test

import (
	"fmt"
	"testing"

	"github.com/hashicorp/consul/api"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/discovery/consul"
	"github.com/portolan-mesh/portolan/discovery/registrytest"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	registrytest.Run(t, func(t *testing.T, xds discovery.XDSUpdater, worker *cache.Worker) registrytest.Source {
		a := newAgent(t)
		r, err := consul.New(consul.Options{Address: a.URL, XDS: xds, Worker: worker})
		if err != nil {
			t.Fatal(err)
		}
		return registrytest.Source{
			Registry: r, Provider: discovery.Consul, Cluster: r.Cluster(), Namespace: consul.DefaultNamespace,
			Offer: func(services ...registrytest.Service) { a.offer(services) },
		}
	})
}

// offer makes the catalogue hold exactly these services.
func (a *agent) offer(services []registrytest.Service) {
	a.change(func() {
		clear(a.entries)
		for _, s := range services {
			for i, instance := range s.Instances {
				id := fmt.Sprintf("%s-%d", s.Name, i)
				a.entries["n1/"+id] = entry("n1", s.Name, id, instance.Address, s.Port, func(e *api.ServiceEntry) {
					e.Service.Meta = map[string]string{"protocol": "http", "v": instance.Labels["v"]}
				})
			}
		}
	})
}
