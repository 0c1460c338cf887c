package endpoint_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/labels"
	"github.com/portolan-mesh/portolan/xds/simulate"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// pods is the service of zonesCluster as a cluster of Kubernetes has it: two pods on a node, others
// elsewhere, one in another cluster on a node of the same name, and a machine.
func pods(more int, edit func(*discovery.Attributes)) discovery.Row {
	s := &discovery.Service{
		Hostname: "a.example.com", Address: discovery.UnspecifiedIP, Ports: []discovery.Port{{Name: "http", Number: 80, Protocol: discovery.HTTP}},
		Attributes: discovery.Attributes{Provider: discovery.Kubernetes, Name: "a", Namespace: "default"},
	}
	edit(&s.Attributes)
	row := discovery.Row{Hostname: s.Hostname, Namespace: "default", Services: []*discovery.Service{s}}
	add := func(address, locality, cluster, node string) {
		row.Endpoints = append(row.Endpoints, &discovery.Endpoint{
			Address: address, Port: 80, ServicePortName: "http", Weight: 1, Node: node, Locality: discovery.Locality{Label: locality, Cluster: cluster},
		})
	}
	add("10.1.0.1", "eu/a", "east", "n1")
	add("10.1.0.2", "eu/a", "east", "n2")
	add("10.1.0.3", "eu/b", "east", "n3")
	add("10.1.0.4", "us/c", "west", "n1")
	add("10.1.0.5", "us/c", "", "")
	for n := range more { // so many that localities are encoded apart
		add(fmt.Sprint("10.2.0.", n), "asia", "east", "n9")
	}
	return row
}

// near returns the service's endpoints as a proxy gets them: address and priority.
func near(s *simulate.Proxy) (out []string) {
	for _, e := range assigned(s) {
		what, _, _ := strings.Cut(e, " w")
		out = append(out, what)
	}
	return out
}

// TestDistribution: a service itself prefers endpoints near its clients, without outlier detection,
// unless a DestinationRule decides.
func TestDistribution(t *testing.T) {
	t.Parallel()
	here := xdstest.Node{Namespace: "default", Locality: "eu/a", NodeName: "n1", ClusterID: "east"}
	all := []string{".0.1 p0", ".0.2 p0", ".0.3 p0", ".0.4 p0", ".0.5 p0"}
	zone := []string{".0.1 p0", ".0.2 p0", ".0.3 p1", ".0.4 p2", ".0.5 p2"}
	for name, c := range map[string]struct {
		node   xdstest.Node
		of     labels.Distribution
		policy string
		want   []string
	}{
		"any":            {node: here, want: all},
		"the zone":       {node: here, of: labels.PreferSameZone, want: zone},
		"the node":       {node: here, of: labels.PreferSameNode, want: []string{".0.1 p0", ".0.2 p1", ".0.3 p2", ".0.4 p3", ".0.5 p3"}},
		"of a machine":   {node: xdstest.Node{Locality: "us/c"}, of: labels.PreferSameNode, want: []string{".0.1 p2", ".0.2 p2", ".0.3 p2", ".0.4 p1", ".0.5 p0"}},
		"a rule decides": {node: here, of: labels.PreferSameZone, policy: "{loadBalancer: {localityLbSetting: {enabled: false}}}", want: all},
		"a rule without": {node: here, of: labels.PreferSameZone, policy: "{outlierDetection: {}}", want: zone},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var objects []string
			if c.policy != "" {
				objects = append(objects, xdstest.Object("DestinationRule", "a", "{host: a.example.com, trafficPolicy: "+c.policy+"}"))
			}
			w := xdstest.NewWorld(t, objects...)
			w.Offer(pods(0, func(a *discovery.Attributes) { a.Distribution = c.of }))
			s := w.Simulate(c.node)
			got := near(s)
			if diff := gocmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
			weighted := s.Cluster(zonesCluster).GetCommonLbConfig().GetLocalityWeightedLbConfig() != nil
			if want := !slices.Equal(c.want, all); weighted != want {
				t.Errorf("by the weights of localities: %v", weighted)
			}
		})
	}
}

// TestNodeLocal: a proxy has the endpoints on its own node alone, and one on no node those on none.
// It follows when the service changes its mind.
func TestNodeLocal(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		node xdstest.Node
		want []string
	}{
		"on a node":                       {xdstest.Node{NodeName: "n1", ClusterID: "east"}, []string{".0.1 p0"}},
		"of another cluster":              {xdstest.Node{NodeName: "n1", ClusterID: "west"}, []string{".0.4 p0"}},
		"of a cluster that it never says": {xdstest.Node{NodeName: "n1"}, []string{".0.1 p0", ".0.4 p0"}},
		"on a node without a pod":         {xdstest.Node{NodeName: "n4", ClusterID: "east"}, nil},
		"a machine":                       {xdstest.Node{}, []string{".0.5 p0"}},
	} {
		for _, more := range []int{0, 80} {
			w := xdstest.NewWorld(t)
			w.Offer(pods(more, func(a *discovery.Attributes) { a.NodeLocal = true }))
			if diff := gocmp.Diff(c.want, near(w.Simulate(c.node))); diff != "" {
				t.Errorf("%s: %s", name, diff)
			}
			w.Offer(pods(more, func(*discovery.Attributes) {}))
			if got := near(w.Simulate(c.node)); len(got) != 5+more {
				t.Errorf("%s: not local: %d", name, len(got))
			}
		}
	}
}

// TestNodesAreOneClass: proxies of several nodes share a class as long as no service asks.
func TestNodesAreOneClass(t *testing.T) {
	t.Parallel()
	for want, edit := range map[int]func(*discovery.Attributes){
		1: func(*discovery.Attributes) {},
		2: func(a *discovery.Attributes) { a.NodeLocal = true },
	} {
		w := xdstest.NewWorld(t)
		w.Offer(pods(0, edit))
		classes := map[any]bool{}
		for _, node := range []string{"n1", "n2"} {
			classes[w.Class(xdstest.Node{NodeName: node})] = true
		}
		if len(classes) != want {
			t.Errorf("%d classes, want %d", len(classes), want)
		}
	}
}
