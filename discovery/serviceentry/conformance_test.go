package serviceentry_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/discovery/registrytest"
	"github.com/portolan-mesh/portolan/discovery/serviceentry"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/storage/schema"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	registrytest.Run(t, func(t *testing.T, xds discovery.XDSUpdater, worker *cache.Worker) registrytest.Source {
		feed := cache.NewFeed(cache.FeedOptions{Worker: worker, Schemas: schema.Pilot()})
		store := serviceentry.New(serviceentry.Options{Cluster: "c1", XDS: xds, Worker: worker, Configs: source{feed}})
		declared := func(services []registrytest.Service) (configs pmap.Map[*config.Config]) {
			for _, s := range services {
				c := declare(t, s)
				configs = configs.Set(c.Key().Path(), c)
			}
			return configs
		}
		var once sync.Once
		var from *cache.Snapshot // the snapshot at the first fork: the suite forks before it calls Would
		return registrytest.Source{
			Registry: store, Provider: discovery.External, Cluster: "c1",
			Offer: func(services ...registrytest.Service) {
				feed.Publish(cache.NewSnapshot(feed.Snapshot().Revision()+1, declared(services)))
			},
			Would: func(services ...registrytest.Service) (_, to *cache.Snapshot) {
				once.Do(func() { from = feed.Handled() })
				return from, cache.NewSnapshot(from.Revision()+1, declared(services))
			},
		}
	})
}

// declare returns the ServiceEntry for a service of the suite.
func declare(t *testing.T, s registrytest.Service) *config.Config {
	var endpoints []string
	for _, i := range s.Instances {
		endpoints = append(endpoints, fmt.Sprintf("{address: %s, labels: {v: %q}}", i.Address, i.Labels["v"]))
	}
	return entry(t, s.Name, fmt.Sprintf("{hosts: [%s.example], resolution: STATIC, ports: [{number: %d, name: http, protocol: HTTP}], endpoints: [%s]}",
		s.Name, s.Port, strings.Join(endpoints, ", ")))
}
