package kube_test

import (
	"testing"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/discovery/kube"
	"github.com/portolan-mesh/portolan/discovery/registrytest"
	"github.com/portolan-mesh/portolan/storage/schema"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	registrytest.Run(t, func(t *testing.T, xds discovery.XDSUpdater, worker *cache.Worker) registrytest.Source {
		a := newAPI(t)
		feed := cache.NewFeed(cache.FeedOptions{Worker: worker, Schemas: schema.Pilot()})
		clusters := kube.New(kube.Options{XDS: xds, Worker: worker, Configs: feed})
		return registrytest.Source{
			Registry: clusters.Registry(a.connect("east")), Provider: discovery.Kubernetes, Cluster: "east",
			Offer: func(services ...registrytest.Service) { a.replace(offer(services)...) },
		}
	})
}
