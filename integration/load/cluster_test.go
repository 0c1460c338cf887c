package main

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/portolan-mesh/portolan/integration/load/fleet"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/xdstest/refmesh"
)

// TestKubernetesHalfOfTheMesh measures a small mesh of which a cluster has half. Every figure is
// there, and proxies get what they get of the same mesh that a store has alone.
func TestKubernetesHalfOfTheMesh(t *testing.T) {
	o := smallOptions(t)
	o.kubeAPIServer = "../../.tools/kube-apiserver"
	if _, err := os.Stat(o.kubeAPIServer); err != nil {
		t.Skipf("there is no kube-apiserver (%v): run make kube-apiserver", err)
	}
	mesh := refmesh.Mesh{Services: 20, HalfInCluster: true}
	r := &results{floors: map[string]float64{}, report: &report{}, cell: cell{
		name: "20:2/kubernetes", mesh: mesh, proxies: 2, variant: protocol.Delta, changes: []string{"endpoint", "routes"}, kubernetes: true, targets: besideTheStore("20:2"),
	}}
	r.report.cells = []*results{r}
	m := &run{options: o, results: r, record: &recorder{}}
	stop, err := m.startHalves(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
	m.server = serveWith(t, o, slices.Concat(m.kube.flags(), m.etcd.flags())...)
	if err := m.besideCluster(t.Context()); err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range r.figures {
		got[f.name] = f.value
	}
	for _, kind := range r.cell.changes {
		for _, figure := range []string{usual(kind), usual(inCluster(kind)), bytesOf(inCluster(kind))} {
			if got[figure] <= 0 {
				t.Errorf("%s is %v", figure, got[figure])
			}
		}
		if target := r.targets()[onceShown(inCluster(kind))]; target.most != 1.3*got[onceShown(kind)] {
			t.Errorf("%s is judged by %v", kind, target)
		}
	}
	whole := serveWith(t, o)
	if err := whole.write(t.Context(), slices.Concat(mesh.Objects(), mesh.ObjectsOfCluster())); err != nil {
		t.Fatal(err)
	}
	sent := &recorder{}
	f, end := follow(t.Context(), fleet.Options{Address: whole.xds, Proxies: 1, Variant: protocol.Delta, Node: m.node(r.cell, 0), Record: sent.take})
	defer end()
	if _, err := f.AwaitSync(t.Context(), o.silence); err != nil {
		t.Fatal(err)
	}
	compareResources(t, firstOf(t, m.record), firstOf(t, sent))
}

// serveWith starts a server with flags.
func serveWith(t *testing.T, o options, flags ...string) *server {
	t.Helper()
	s, err := startServer(t.Context(), o.binary, t.TempDir(), append(flags, "--route-delta=auto")...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.stop(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// firstOf returns the first form of each resource that a proxy was sent, in JSON by type and name.
func firstOf(t *testing.T, r *recorder) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, text := range r.all() {
		var response discoveryv3.DeltaDiscoveryResponse
		if err := proto.Unmarshal(text, &response); err != nil {
			t.Fatal(err)
		}
		for _, resource := range response.GetResources() {
			key := filepath.Base(response.GetTypeUrl()) + " " + resource.GetName()
			if _, met := out[key]; !met {
				out[key] = protojson.MarshalOptions{Multiline: true}.Format(resource.GetResource())
			}
		}
	}
	return out
}

// compareResources compares what proxies have with a cluster and without. Only metadata differs: a
// Service has a name besides its host, and the workload of an endpoint is in a cluster.
func compareResources(t *testing.T, half, whole map[string]string) {
	t.Helper()
	plain := func(text string) string {
		text = serviceName.ReplaceAllString(text, `$1"of the service"`)
		return strings.ReplaceAll(text, ";"+clusterName+`"`, `;"`)
	}
	for _, name := range slices.Sorted(maps.Keys(whole)) {
		if half[name] == "" {
			t.Errorf("with a cluster there is no %s", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(half)) {
		if diff := cmp.Diff(plain(whole[name]), plain(half[name])); diff != "" {
			t.Errorf("%s differs: %s", name, diff)
		}
	}
	if len(half) < 100 {
		t.Errorf("there are %d resources", len(half))
	}
}

var serviceName = regexp.MustCompile(`("host":\s+"[^"]+",\s+"name":\s+)"[^"]+"`)
