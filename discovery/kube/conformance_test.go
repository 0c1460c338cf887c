package kube_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/discovery/kube"
	"github.com/portolan-mesh/portolan/discovery/kube/kubetest"
	"github.com/portolan-mesh/portolan/discovery/registrytest"
	"github.com/portolan-mesh/portolan/storage/schema"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	registrytest.Run(t, func(t *testing.T, xds discovery.XDSUpdater, worker *cache.Worker) registrytest.Source {
		a := kubetest.New(t)
		feed := cache.NewFeed(cache.FeedOptions{Worker: worker, Schemas: schema.Pilot()})
		clusters := kube.New(kube.Options{XDS: xds, Worker: worker, Configs: feed})
		return registrytest.Source{
			Registry: clusters.Registry(a.Connect("east")), Provider: discovery.Kubernetes, Cluster: "east",
			Offer: func(services ...registrytest.Service) { a.Replace(offer(services)...) },
		}
	})
}

// offer returns the objects of the suite's services: each instance is a pod of its own.
func offer(services []registrytest.Service) (out []metav1.Object) {
	for _, s := range services {
		out = append(out, kubetest.NewService(s.Namespace, s.Name, func(o *corev1.Service) {
			o.Spec.Ports = []corev1.ServicePort{{Name: "http", Port: int32(s.Port)}} //nolint:gosec // ports are small
			o.Spec.ClusterIP = fmt.Sprintf("10.96.0.%d", len(out)+1)
		}))
		slice := kubetest.NewSlice(s.Namespace, s.Name, int32(s.Port)) //nolint:gosec // ports are small
		for n, i := range s.Instances {
			p := kubetest.NewPod(s.Namespace, fmt.Sprintf("%s-%d", s.Name, n), i.Address, map[string]string{"app": s.Name, "v": i.Labels["v"]})
			slice.Endpoints = append(slice.Endpoints, kubetest.EndpointOf(p))
			out = append(out, p)
		}
		out = append(out, slice)
	}
	return out
}
