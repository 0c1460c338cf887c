package kube_test

import (
	"context"
	"testing"

	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/discovery/aggregate"
	"github.com/portolan-mesh/portolan/discovery/discoverytest"
	"github.com/portolan-mesh/portolan/discovery/kube"
	"github.com/portolan-mesh/portolan/discovery/serviceentry"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/host"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// configs is a cache of objects that a test publishes.
type configs struct{ *cache.Feed }

// Run implements cache.ConfigStoreCache.
func (c configs) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

func object(kind config.GroupVersionKind, name string, spec proto.Message) *config.Config {
	return &config.Config{Meta: config.Meta{GroupVersionKind: kind, Namespace: "shop", Name: name}, Spec: spec}
}

// TestBothDirections: of one batch a Service takes the WorkloadEntry and a ServiceEntry the pods, in
// the mesh and in the fork that a dry run makes.
func TestBothDirections(t *testing.T) {
	t.Parallel()
	a, _, _, _ := shop(t)
	xds, worker := &discoverytest.Recorder{}, cache.NewWorker()
	feed := cache.NewFeed(cache.FeedOptions{Worker: worker, Schemas: schema.Pilot()})
	entries := serviceentry.New(serviceentry.Options{XDS: xds, Worker: worker, Configs: configs{feed}})
	clusters := kube.New(kube.Options{XDS: xds, Worker: worker, Configs: feed})
	entries.ExchangeWorkloads(clusters)
	all := aggregate.New(aggregate.Options{XDS: xds, Worker: worker})
	for _, one := range []discovery.Instance{entries, clusters.Registry(a.Connect("east"))} {
		if err := all.Add(one); err != nil {
			t.Fatal(err)
		}
	}
	r := &rig{t: t, xds: xds, worker: worker, clusters: clusters}
	feed.Publish(cache.NewSnapshot(1, pmap.Map[*config.Config]{}))
	r.background(worker.Run)
	r.background(all.Run)
	r.await("all have synced", all.HasSynced)
	r.has("http=10.0.0.1:8080", "http=10.0.0.2:8080")

	var written pmap.Map[*config.Config]
	for _, o := range []*config.Config{
		object(schema.WorkloadEntry, "vm", &networking.WorkloadEntry{Address: "10.1.0.1", Labels: map[string]string{"app": "web"}}),
		object(schema.ServiceEntry, "pods", &networking.ServiceEntry{
			Hosts: []string{"pods.example"}, Resolution: networking.ServiceEntry_STATIC,
			WorkloadSelector: &networking.WorkloadSelector{Labels: map[string]string{"app": "web"}},
			Ports:            []*networking.ServicePort{{Number: 80, Name: "http", Protocol: "HTTP", TargetPort: 8080}},
		}),
	} {
		written = written.Set(o.Key().Path(), o)
	}
	var fork discovery.Fork
	r.do(func() { fork = all.Fork() })
	to := cache.NewSnapshot(2, written)
	would := fork.Apply(feed.Handled(), to, &discoverytest.Recorder{})
	counts := func(of discovery.ServiceDiscovery) (out []int) {
		for _, name := range []host.Name{webHost, "pods.example"} {
			out = append(out, len(of.InstancesByPort(of.GetService(name), 80, nil)))
		}
		return out
	}
	expect(t, counts(would), []int{3, 3})
	feed.Publish(to)
	r.has("http=10.0.0.1:8080", "http=10.0.0.2:8080", "http=10.1.0.1:8080")
	r.await("the ServiceEntry has all three", func() bool { return len(r.endpoints("shop", "pods.example")) == 3 })
	expect(t, counts(all), counts(would))
}
