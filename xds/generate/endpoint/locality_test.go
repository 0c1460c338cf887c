package endpoint_test

import (
	"cmp"
	"fmt"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/xds/simulate"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// zones is a service with endpoints in four zones of three regions.
const zones = `{hosts: [a.example.com], resolution: %s, ports: [{number: 80, name: http, protocol: HTTP}], endpoints: [
	{address: 10.1.0.1, locality: eu/a/x, labels: {rack: "1"}}, {address: 10.1.0.2, locality: eu/a/y, weight: 3, labels: {rack: "2"}},
	{address: 10.1.0.3, locality: eu/b, labels: {rack: "1", version: v1}}, {address: 10.1.0.4, locality: us/c}, {address: 10.1.0.5, locality: asia/d, labels: {version: v1}}]}`

// arranged returns the service's endpoints as a proxy gets them: address, priority, and
// weight of the locality.
func arranged(t *testing.T, n xdstest.Node, resolution, policy string, more ...string) ([]string, bool) {
	t.Helper()
	s := xdstest.NewWorld(t, append(more, xdstest.Object("ServiceEntry", "a", fmt.Sprintf(zones, resolution)),
		xdstest.Object("DestinationRule", "a", "{host: a.example.com, trafficPolicy: "+policy+"}"))...).Simulate(n)
	return assigned(s), s.Cluster(zonesCluster).GetCommonLbConfig().GetLocalityWeightedLbConfig() != nil
}

const zonesCluster = "outbound|80||a.example.com"

// assigned returns the service's endpoints in the proxy's load assignment.
func assigned(s *simulate.Proxy) (out []string) {
	assignment := cmp.Or(s.Assignment(zonesCluster), s.Cluster(zonesCluster).GetLoadAssignment())
	for _, l := range assignment.GetEndpoints() {
		for _, e := range l.GetLbEndpoints() {
			out = append(out, fmt.Sprintf("%s p%d w%d", e.GetEndpoint().GetAddress().GetSocketAddress().GetAddress()[4:], l.GetPriority(), l.GetLoadBalancingWeight().GetValue()))
		}
	}
	slices.Sort(out)
	return out
}

func TestLocalities(t *testing.T) {
	t.Parallel()
	eu := xdstest.Node{Namespace: "default", Locality: "eu/a/x", Labels: map[string]string{"rack": "2"}}
	same := []string{".0.1 p0 w1", ".0.2 p0 w3", ".0.3 p0 w1", ".0.4 p0 w1", ".0.5 p0 w1"}
	near := []string{".0.1 p0 w1", ".0.2 p1 w3", ".0.3 p2 w1", ".0.4 p3 w1", ".0.5 p3 w1"}
	for name, c := range map[string]struct {
		node     xdstest.Node
		policy   string
		more     []string
		want     []string
		weighted bool
	}{
		"no outlier detection": {node: eu, policy: "{loadBalancer: {localityLbSetting: {failover: [{from: eu, to: us}]}}}", want: same},
		"none of it":           {node: eu, policy: "{loadBalancer: {simple: RANDOM}}", want: same},
		"failover of the mesh": {node: eu, policy: "{outlierDetection: {}}", want: near},
		"switched off":         {node: eu, policy: "{outlierDetection: {}, loadBalancer: {localityLbSetting: {enabled: false}}}", want: same},
		"of a region": {node: eu, policy: "{outlierDetection: {}, loadBalancer: {localityLbSetting: {failover: [{from: us, to: eu}, {from: eu, to: us}]}}}",
			want: []string{".0.1 p0 w1", ".0.2 p1 w3", ".0.3 p2 w1", ".0.4 p3 w1", ".0.5 p4 w1"}, weighted: true},
		"from a zone that has nothing": {node: xdstest.Node{Locality: "eu/z"}, policy: "{outlierDetection: {}}",
			want: []string{".0.1 p0 w1", ".0.2 p0 w3", ".0.3 p0 w1", ".0.4 p1 w1", ".0.5 p1 w1"}},
		"of an unknown place":    {node: xdstest.Node{}, policy: "{outlierDetection: {}}", want: same},
		"by a label of the node": {node: xdstest.Node{Locality: "us/c", Labels: map[string]string{"istio-locality": "eu.a.x"}}, policy: "{outlierDetection: {}}", want: near},
		"by labels of the topology": {node: xdstest.Node{Labels: map[string]string{
			"topology.kubernetes.io/region": "eu", "topology.kubernetes.io/zone": "a", "topology.istio.io/subzone": "x"}},
			policy: "{outlierDetection: {}}", want: near},
		"by the workload": {node: xdstest.Node{IP: "10.9.9.9"}, policy: "{outlierDetection: {}}", want: near, more: []string{
			xdstest.Object("ServiceEntry", "w", "{hosts: [w.example.com], resolution: STATIC, ports: [{number: 80, name: http, protocol: HTTP}], endpoints: [{address: 10.9.9.9, locality: eu/a/x, labels: {app: w}}]}")}},
		"distribute": {node: eu, policy: "{loadBalancer: {localityLbSetting: {distribute: [{from: us, to: {us: 100}}, {from: eu/a/*, to: {eu/a: 80, us: 20}}]}}}",
			want: []string{".0.1 p0 w20", ".0.2 p0 w60", ".0.4 p0 w20"}, weighted: true},
		"distribute, from elsewhere": {node: xdstest.Node{Locality: "asia"}, policy: "{loadBalancer: {localityLbSetting: {distribute: [{from: eu, to: {eu: 100}}]}}}", want: same, weighted: true},
		"priority by labels": {node: eu, policy: "{outlierDetection: {}, loadBalancer: {localityLbSetting: {failoverPriority: [rack, topology.kubernetes.io/region]}}}",
			want: []string{".0.1 p1 w1", ".0.2 p0 w3", ".0.3 p1 w1", ".0.4 p1 w1", ".0.5 p1 w1"}, weighted: true},
		"priority by the region, then a value": {node: eu, policy: "{outlierDetection: {}, loadBalancer: {localityLbSetting: {failoverPriority: [topology.kubernetes.io/region, version=v1]}}}",
			want: []string{".0.1 p1 w1", ".0.2 p1 w3", ".0.3 p0 w1", ".0.4 p2 w1", ".0.5 p2 w1"}, weighted: true},
		"by a value, then the region": {node: eu, policy: "{outlierDetection: {}, loadBalancer: {localityLbSetting: {failoverPriority: [version=v1], failover: [{from: eu, to: asia}]}}}",
			want: []string{".0.1 p2 w1", ".0.2 p3 w3", ".0.3 p0 w1", ".0.4 p4 w1", ".0.5 p1 w1"}, weighted: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, resolution := range []string{"STATIC", "DNS"} {
				got, weighted := arranged(t, c.node, resolution, c.policy, c.more...)
				if diff := gocmp.Diff(c.want, got); diff != "" {
					t.Errorf("%s: %s", resolution, diff)
				}
				if weighted != c.weighted {
					t.Errorf("%s: by the weights of localities: %v", resolution, weighted)
				}
			}
			grpc := c.node
			grpc.Type = discovery.Proxyless
			if got, _ := arranged(t, grpc, "STATIC", c.policy, c.more...); !slices.Equal(c.want, got) {
				t.Errorf("gRPC: %v", got)
			}
		})
	}
}

// Proxies of several localities share a class as long as no configuration reads the
// locality.
func TestLocalitiesAreOneClass(t *testing.T) {
	t.Parallel()
	for policy, want := range map[string]int{
		"{loadBalancer: {simple: RANDOM}}": 1,
		"{outlierDetection: {}}":           2,
		"{outlierDetection: {}, loadBalancer: {localityLbSetting: {enabled: false}}}":                                                                  1,
		"{outlierDetection: {}, loadBalancer: {localityLbSetting: {enabled: false}}, portLevelSettings: [{port: {number: 80}, outlierDetection: {}}]}": 2,
	} {
		w := xdstest.NewWorld(t, xdstest.Object("DestinationRule", "a", "{host: a.example.com, trafficPolicy: "+policy+"}"))
		classes := map[any]bool{}
		for _, locality := range []string{"eu/a", "us/b"} {
			classes[w.Class(xdstest.Node{Locality: locality})] = true
		}
		if len(classes) != want {
			t.Errorf("%s: %d classes, want %d", policy, len(classes), want)
		}
	}
}

// TestLocalitiesOfTheMesh: the mesh's setting is on unless it is disabled, like that of a
// rule.
func TestLocalitiesOfTheMesh(t *testing.T) {
	t.Parallel()
	for setting, want := range map[string]string{
		"{failover: [{from: eu, to: us}]}":                 ".0.4 p3 w1",
		"{enabled: true}":                                  ".0.4 p3 w1",
		"{enabled: false, failover: [{from: eu, to: us}]}": ".0.4 p0 w1",
	} {
		w := xdstest.NewWorld(t, xdstest.Object("ServiceEntry", "a", fmt.Sprintf(zones, "STATIC")),
			xdstest.Object("DestinationRule", "a", "{host: a.example.com, trafficPolicy: {outlierDetection: {}}}"))
		w.SetMesh("localityLbSetting: " + setting)
		if got := assigned(w.Simulate(xdstest.Node{Locality: "eu/a/x"})); !slices.Contains(got, want) {
			t.Errorf("%s: %v, want %s", setting, got, want)
		}
	}
}
