package xds_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portolan-mesh/portolan/cache"
	cachememory "github.com/portolan-mesh/portolan/cache/memory"
	"github.com/portolan-mesh/portolan/discovery/kube"
	"github.com/portolan-mesh/portolan/discovery/kube/kubetest"
	"github.com/portolan-mesh/portolan/discovery/serviceentry"
	"github.com/portolan-mesh/portolan/storage/memory"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/xds"
	"github.com/portolan-mesh/portolan/xds/generate/catalogue"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// TestARollingUpdateIsFewPushes: a cluster replaces 500 pods of ten services, a pod of each at a
// time, with four writes for each pod. Proxies have all of it after fewer pushes than pods.
func TestARollingUpdateIsFewPushes(t *testing.T) {
	t.Parallel()
	const services, each = 10, 50
	a := kubetest.New(t)
	parts, pods := [services]*discoveryv1.EndpointSlice{}, [services][each]*corev1.Pod{}
	pod := func(s, p, generation int) *corev1.Pod {
		name := fmt.Sprint("web", s)
		return kubetest.NewPod("shop", fmt.Sprintf("%s-%d-%d", name, generation, p), fmt.Sprintf("10.%d.%d.%d", generation, s, p), map[string]string{"app": name})
	}
	for s := range services {
		parts[s] = kubetest.NewSlice("shop", fmt.Sprint("web", s), 8080)
		for p := range each {
			pods[s][p] = pod(s, p, 1)
			parts[s].Endpoints = append(parts[s].Endpoints, kubetest.EndpointOf(pods[s][p]))
			a.Put(pods[s][p])
		}
		a.Put(parts[s], kubetest.NewService("shop", fmt.Sprint("web", s), nil))
	}
	address, registry := serveCluster(t, a, memory.New(schema.Pilot(), memory.Options{Domain: "cluster.local"}))
	client := xdstest.Dial(t, address, xdstest.ClientOptions{Node: xdstest.NewNode("sidecar", "10.9.9.9", "client", "shop", nil), Follow: true})
	client.Subscribe(xdstest.ClusterType)
	hasAll := func(generation int) func(func(string) map[string]xdstest.Held) bool {
		return func(held func(string) map[string]xdstest.Held) bool {
			for s := range services {
				body := held(xdstest.EndpointType)[fmt.Sprintf("outbound|80||web%d.shop.svc.cluster.local", s)].Body.GetValue()
				if !bytes.Contains(body, fmt.Appendf(nil, "10.%d.%d.%d", generation, s, each-1)) || bytes.Contains(body, fmt.Appendf(nil, "10.%d.%d.%d", 3-generation, s, each-1)) {
					return false
				}
			}
			return true
		}
	}
	client.Await("all pods", hasAll(1))
	before, yes, no := counted(t, registry, "portolan_pushes_total"), true, false
	for p := range each {
		var added, removed, gone []metav1.Object
		for s := range services {
			next := pod(s, p, 2)
			parts[s] = parts[s].DeepCopy()
			parts[s].Endpoints[0].Conditions = discoveryv1.EndpointConditions{Ready: &no, Serving: &yes, Terminating: &yes}
			parts[s].Endpoints = append(parts[s].Endpoints, kubetest.EndpointOf(next))
			added = append(added, next, parts[s])
			parts[s] = parts[s].DeepCopy()
			parts[s].Endpoints = parts[s].Endpoints[1:]
			removed, gone = append(removed, parts[s]), append(gone, pods[s][p])
		}
		a.Put(added...)
		a.Put(removed...)
		a.Drop(gone...)
	}
	client.Await("all new pods", hasAll(2))
	pushes := counted(t, registry, "portolan_pushes_total") - before
	t.Logf("%.0f pushes for %d writes", pushes, 4*services*each)
	if pushes > services*each {
		t.Errorf("%.0f pushes for %d pods", pushes, services*each)
	}
}

// serveCluster serves the mesh of a cluster's services beside those of a store, and returns where.
func serveCluster(t testing.TB, a *kubetest.API, store *memory.Store) (string, *prometheus.Registry) {
	t.Helper()
	worker, registry := cache.NewWorker(), prometheus.NewRegistry()
	configs := cachememory.New(store, cachememory.Options{Worker: worker})
	var cluster *kube.Registry
	s := xds.New(xds.Options{
		Configs: configs, Types: catalogue.Types(), Registerer: registry, Logger: slog.New(slog.DiscardHandler),
		Synced: func() bool { return configs.HasSynced() && cluster.HasSynced() },
	})
	serviceentry.New(serviceentry.Options{XDS: s, Worker: worker, Configs: configs})
	cluster = kube.New(kube.Options{XDS: s, Worker: worker, Configs: configs}).Registry(a.Connect("east"))
	worker.AtTaskEnd(s.Commit)
	g := grpc.NewServer(xds.ServerOptions()...)
	s.Register(g)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for _, part := range []func(context.Context) error{worker.Run, configs.Run, s.Run, cluster.Run} {
		running.Go(func() {
			if err := part(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	running.Go(func() { _ = g.Serve(listener) })
	t.Cleanup(func() {
		g.Stop()
		cancel()
		running.Wait()
	})
	<-s.Published()
	return listener.Addr().String(), registry
}

// halves is a mesh whose services a cluster and a store have, with ten endpoints each.
type halves struct {
	testing.TB
	api   *kubetest.API
	store *memory.Store
	parts []*discoveryv1.EndpointSlice // of the services of the cluster
}

func newHalves(t testing.TB, cluster, stored int) *halves {
	h := &halves{TB: t, api: kubetest.New(t), store: memory.New(schema.Pilot(), memory.Options{Domain: "cluster.local"})}
	h.api.Put(kubetest.NewNode("n1", "eu", "a"))
	for s := range cluster {
		name := fmt.Sprint("web", s)
		slice := kubetest.NewSlice("shop", name, 8080)
		for p := range 10 {
			pod := kubetest.NewPod("shop", fmt.Sprint(name, "-", p), fmt.Sprintf("10.%d.%d.%d", s>>8, s&255, p+1), map[string]string{"app": name})
			slice.Endpoints = append(slice.Endpoints, kubetest.EndpointOf(pod))
			h.api.Put(pod)
		}
		h.parts = append(h.parts, slice)
		h.api.Put(slice, kubetest.NewService("shop", name, func(o *corev1.Service) { o.Spec.ClusterIP = fmt.Sprintf("10.96.%d.%d", s>>8, s&255) }))
	}
	for s := range stored {
		var entries strings.Builder
		for w := range 10 {
			fmt.Fprintln(&entries, h.entry(s, w, "0"))
		}
		h.apply(fmt.Sprintf(`{apiVersion: networking.istio.io/v1, kind: ServiceEntry, metadata: {name: own%[1]d, namespace: shop},
spec: {hosts: [%[2]s], addresses: [10.97.%[3]d.%[4]d], location: MESH_INTERNAL, resolution: STATIC, workloadSelector: {labels: {app: own%[1]d}},
ports: [{number: 80, name: http, protocol: HTTP, targetPort: 8080}]}}
`, s, h.host("own", s), s>>8, s&255) + entries.String())
	}
	return h
}

func (h *halves) host(prefix string, s int) string {
	return fmt.Sprintf("%s%d.shop.svc.cluster.local", prefix, s)
}

func (h *halves) entry(s, w int, v string) string {
	return fmt.Sprintf(`---
{apiVersion: networking.istio.io/v1, kind: WorkloadEntry, metadata: {name: own%[1]d-%[2]d, namespace: shop},
spec: {address: 10.%[3]d.%[4]d.%[5]d, labels: {app: own%[1]d, v: "%[6]s"}, locality: eu/a, serviceAccount: web, weight: %[7]d}}`, s, w, 100+s>>8, s&255, w+1, v, 1+len(v))
}

func (h *halves) apply(documents string) {
	h.Helper()
	if _, _, err := h.store.Apply(context.Background(), xdstest.Ops(h, documents)); err != nil {
		h.Fatal(err)
	}
}

// connect opens a client, and returns how long it took to have all services.
func (h *halves) connect(address string, services int) (*xdstest.Client, time.Duration) {
	began := time.Now()
	client := xdstest.Dial(h, address, xdstest.ClientOptions{Node: xdstest.NewNode("sidecar", "10.9.9.9", "client", "shop", nil), Follow: true})
	client.Subscribe(xdstest.ClusterType)
	client.Subscribe(xdstest.ListenerType)
	client.Await("all services", func(held func(string) map[string]xdstest.Held) bool {
		return len(held(xdstest.EndpointType)) == services && len(held(xdstest.RouteType)) > 0
	})
	return client, time.Since(began)
}

// BenchmarkHalfInACluster is a mesh of 1,000 services, half of them in a cluster, beside one that is
// all in the store: the first sync, and the p99 of an endpoint's and a route's change from its write
// until a proxy has it. Changes of either half alternate, so that a disturbance affects both.
func BenchmarkHalfInACluster(b *testing.B) {
	const services, changes = 500, 200
	whole := newHalves(b, 0, 2*services)
	wholeAt, _ := serveCluster(b, whole.api, whole.store)
	half := newHalves(b, services, services)
	halfAt, _ := serveCluster(b, half.api, half.store)
	for b.Loop() {
		var syncs [2][]time.Duration
		var client *xdstest.Client
		for range 7 {
			c, took := whole.connect(wholeAt, 2*services)
			c.Close()
			syncs[0] = append(syncs[0], took)
			if client != nil {
				client.Close()
			}
			client, took = half.connect(halfAt, 2*services)
			syncs[1] = append(syncs[1], took)
		}
		took := func(typeURL, name, mark string, change func()) time.Duration {
			began := time.Now()
			change()
			client.Await(mark, func(held func(string) map[string]xdstest.Held) bool {
				return bytes.Contains(held(typeURL)[name].Body.GetValue(), []byte(mark))
			})
			return time.Since(began)
		}
		var endpoints, routes [2][]time.Duration
		for n := range changes {
			mark := fmt.Sprintf("10.200.%d.%d", n>>8, n&255)
			endpoints[0] = append(endpoints[0], took(xdstest.EndpointType, "outbound|80||"+half.host("own", n), mark, func() {
				half.apply(strings.Replace(half.entry(n, 0, "0"), fmt.Sprintf("address: 10.%d.%d.1,", 100+n>>8, n&255), "address: "+mark+",", 1))
			}))
			endpoints[1] = append(endpoints[1], took(xdstest.EndpointType, "outbound|80||"+half.host("web", n), mark, func() {
				half.parts[n] = half.parts[n].DeepCopy()
				half.parts[n].Endpoints[0].Addresses = []string{mark}
				half.api.Put(half.parts[n])
			}))
			for i, prefix := range []string{"own", "web"} {
				mark := fmt.Sprintf("/%s-%d-%d", prefix, n, time.Now().UnixNano())
				routes[i] = append(routes[i], took(xdstest.RouteType, "80", mark, func() {
					half.apply(fmt.Sprintf(`{apiVersion: networking.istio.io/v1, kind: VirtualService, metadata: {name: %[1]s, namespace: shop},
spec: {hosts: [%[1]s], http: [{match: [{uri: {prefix: %[2]s}}], route: [{destination: {host: %[1]s}}]}]}}`, half.host(prefix, n), mark))
				}))
			}
		}
		quantile := func(of []time.Duration, q int) float64 {
			slices.Sort(of)
			return of[(len(of)-1)*q/100].Seconds() * 1000
		}
		b.ReportMetric(quantile(syncs[0], 50), "ms/sync-store")
		b.ReportMetric(quantile(syncs[1], 50)/quantile(syncs[0], 50), "x/sync-half")
		for what, of := range map[string][2][]time.Duration{"endpoint": endpoints, "route": routes} {
			for _, q := range []int{50, 99} {
				b.ReportMetric(quantile(of[0], q), fmt.Sprintf("ms/%s-p%d-store", what, q))
				b.ReportMetric(quantile(of[1], q)/quantile(of[0], q), fmt.Sprintf("x/%s-p%d-cluster", what, q))
			}
		}
	}
}
