package kube_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/discovery/kube"
	"github.com/portolan-mesh/portolan/discovery/kube/kubetest"
	"github.com/portolan-mesh/portolan/storage/longtest"
)

// drawn is a random object of a small cluster, or one that goes.
func drawn(draw *rand.Rand) (o metav1.Object, gone bool) {
	name := func(prefix string, of int) string { return fmt.Sprint(prefix, draw.IntN(of)) }
	service, zone := name("s", 3), name("z", 3)
	switch draw.IntN(5) {
	case 0:
		o = kubetest.NewNode(name("n", 2), "eu", zone)
	case 1:
		o = kubetest.NewService("shop", service, func(s *corev1.Service) {
			s.Spec.PublishNotReadyAddresses = draw.IntN(3) == 0
			s.Spec.Selector = map[string]string{"app": name("a", 3)}
			if draw.IntN(4) == 0 {
				s.Spec.ClusterIP = corev1.ClusterIPNone
			}
			if draw.IntN(4) == 0 {
				s.Spec.Type, s.Spec.ExternalName, s.Spec.ClusterIP = corev1.ServiceTypeExternalName, name("s", 3)+".shop.svc.cluster.local", ""
			}
			if draw.IntN(4) == 0 {
				s.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv6Protocol}
			}
		})
	case 2:
		p := kubetest.NewPod("shop", name("p", 4), "10.0.0.1", map[string]string{"app": name("a", 3), "v": name("v", 2)})
		p.Spec.NodeName, p.Status.PodIP = name("n", 2), name("10.0.0.", 5)
		if draw.IntN(3) == 0 {
			p.Status.Conditions = nil
		}
		o = p
	default:
		slice := kubetest.NewSlice("shop", service, 8080)
		slice.Name = service + name("-", 2)
		for range draw.IntN(4) {
			ready, terminating := draw.IntN(3) > 0, draw.IntN(3) == 0
			e := kubetest.EndpointOf(kubetest.NewPod("shop", name("p", 4), name("10.0.0.", 5), nil))
			node := name("n", 2)
			e.NodeName, e.Conditions = &node, discoveryv1.EndpointConditions{Ready: &ready, Terminating: &terminating}
			slice.Endpoints = append(slice.Endpoints, e)
		}
		o = slice
	}
	return o, draw.IntN(4) == 0
}

// TestSoakHistories: objects and workloads change, and clusters come, go and get other connections. The
// rows are then those of a server that begins with the present state.
func TestSoakHistories(t *testing.T) {
	t.Parallel()
	runs := 8
	if longtest.Soak(t) > 0 {
		runs = 300
	}
	for seed := range uint64(runs) {
		draw := rand.New(rand.NewPCG(seed, 40))
		clusters := []*kubetest.API{kubetest.New(t), kubetest.New(t), kubetest.New(t), kubetest.New(t)}
		r := newRig(t, kube.Options{})
		r.follow(clusters[0], "east")
		r.follow(clusters[1], "west")
		workloads := map[string]*discovery.WorkloadInstance{}
		type remote struct {
			*kube.Registry
			of    *kubetest.API
			leave func()
		}
		remotes := map[string]remote{}
		for range 60 {
			if draw.IntN(8) == 0 {
				name, of := fmt.Sprint("r", draw.IntN(3)), clusters[2+draw.IntN(2)]
				switch one, there := remotes[name]; {
				case !there:
					registry, leave := r.followRemote(of, name)
					remotes[name] = remote{registry, of, leave}
				case draw.IntN(2) == 0:
					one.Reconnect(of.Connect(name), "")
					remotes[name] = remote{one.Registry, of, one.leave}
				default:
					one.leave()
					delete(remotes, name)
				}
			}
			if draw.IntN(4) == 0 {
				w := &discovery.WorkloadInstance{
					Name: fmt.Sprint("w", draw.IntN(3)), Namespace: "shop", Provider: discovery.External,
					Endpoint: discovery.Endpoint{Address: fmt.Sprint("10.0.0.", draw.IntN(9)), Labels: map[string]string{"app": fmt.Sprint("a", draw.IntN(3))}, Weight: 1},
				}
				event := cache.EventUpdate
				if workloads[w.Name] = w; draw.IntN(3) == 0 {
					event = cache.EventDelete
					delete(workloads, w.Name)
				}
				r.do(func() { r.clusters.WorkloadInstanceHandler(w, event) })
				continue
			}
			a := clusters[draw.IntN(len(clusters))]
			if o, gone := drawn(draw); gone {
				a.Drop(o)
			} else {
				a.Put(o)
			}
		}
		fresh := newRig(t, kube.Options{})
		fresh.do(func() {
			for _, w := range workloads {
				fresh.clusters.WorkloadInstanceHandler(w, cache.EventAdd)
			}
		})
		fresh.follow(clusters[0], "east")
		fresh.follow(clusters[1], "west")
		for name, one := range remotes {
			fresh.followRemote(one.of, name)
		}
		differ := func() string { return cmp.Diff(answers(fresh), answers(r)) }
		r.await(fmt.Sprintf("seed %d: the rows are equal", seed), func() bool {
			for range 3 { // the changes come one after the other
				if differ() != "" {
					return false
				}
			}
			return true
		})
	}
}

// answers returns what the registries of a rig know.
func answers(r *rig) (out []any) {
	for _, one := range r.clusters.Registries() {
		for _, s := range one.Services() {
			out = append(out, one.Cluster(), s, one.InstancesByPort(s, 80, nil))
		}
	}
	return out
}
