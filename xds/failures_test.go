package xds_test

import (
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/proto"

	"github.com/portolan-mesh/portolan/storage/logtest"
	"github.com/portolan-mesh/portolan/storage/status"
	"github.com/portolan-mesh/portolan/xds"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/generate"
	"github.com/portolan-mesh/portolan/xds/generate/catalogue"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/resource"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// fragile is a generator that fails to make the clusters of a host while there is a
// DestinationRule for the host.
type fragile struct {
	generate.Generator
	forWorkload bool // it makes the resources of the workload itself
	fail        func() (proto.Message, error)
}

const fragileHost = "fragile.shop.example"

// Affected implements generate.Generator.
func (f fragile) Affected(v *mesh.View, d mesh.Delta) iter.Seq[string] {
	return func(yield func(string) bool) {
		for name := range f.Generator.Affected(v, d) {
			if !yield(name) {
				return
			}
		}
		if f.forWorkload {
			yield("inbound|9080||")
		}
	}
}

// Build implements generate.Generator.
func (f fragile) Build(v *mesh.View, name string) (proto.Message, []resource.Need, error) {
	if !strings.HasPrefix(name, "inbound|") && !strings.HasSuffix(name, "|"+fragileHost) {
		return f.Generator.Build(v, name)
	}
	if row := v.Service(fragileHost); row != nil && v.Rule(row) != nil {
		message, err := f.fail()
		return message, nil, err
	}
	return f.Generator.Build(v, name)
}

// TestWhatCannotBeBuilt: a resource that cannot be built keeps its last good form on the
// proxies that had one. No other resource suffers. As long as it lasts, the failure is
// reported with its objects and counted in a metric; it is logged once. A proxy that
// connects meanwhile goes without the resource.
func TestWhatCannotBeBuilt(t *testing.T) {
	t.Parallel()
	const rule = `apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: harmful, namespace: shop}
spec: {host: fragile.shop.example, trafficPolicy: {loadBalancer: {simple: RANDOM}}}
`
	for name, fail := range map[string]func() (proto.Message, error){
		"a panic": func() (proto.Message, error) { panic("not prepared for this") },
		"a breach of the rules": func() (proto.Message, error) {
			return &clusterv3.Cluster{Name: ""}, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			types, lines, registry := catalogue.Types(), &logtest.Log{}, prometheus.NewRegistry()
			types[0].Generator = fragile{types[0].Generator, false, fail}
			types[0].Inbound = fragile{types[0].Inbound, true, fail}
			s := xdstest.NewServer(t, types, func(o *xds.Options) {
				o.Logger, o.Registerer = slog.New(slog.NewTextHandler(lines, nil)), registry
			})
			first := s.Apply(service("fragile", 9080, "10.0.0.1"), service("innocent", 9081, "10.0.0.2"))
			c := dial(t, s, protocol.Delta, nil)
			settled(t, s, first)
			const harmed = "outbound|9080||" + fragileHost
			before := c.Held(xdstest.ClusterType)[harmed].Version
			if before == "" {
				t.Fatal("the proxy has no cluster")
			}
			s.Apply(rule, service("another", 9082, "10.0.0.3"))
			for i := range 3 { // tried again at each
				settled(t, s, s.Apply(service("another", 9083+i, "10.0.0.3")))
			}
			held := c.Held(xdstest.ClusterType)
			if got := held[harmed].Version; got != before {
				t.Errorf("the last good form is replaced by %q", got)
			}
			if held["outbound|9085||another.shop.example"].Version == "" {
				t.Errorf("an innocent did not arrive: %v", held)
			}
			late := xdstest.Dial(t, s.Address, xdstest.ClientOptions{Node: xdstest.NewNode("sidecar", "10.0.0.9", "late", "elsewhere", nil), Variant: protocol.Delta, Follow: true})
			late.Subscribe(xdstest.ClusterType)
			late.Await("the innocents", func(held func(string) map[string]xdstest.Held) bool {
				clusters := held(xdstest.ClusterType)
				return clusters["outbound|9081||innocent.shop.example"].Version != "" && clusters[harmed].Version == ""
			})
			problems := failures(s)
			if len(problems) != 2 || !slices.ContainsFunc(problems, func(f status.Problem) bool {
				return f.Node == "" && f.Type == "CDS" && f.Rejected && strings.HasPrefix(f.Message, harmed+": ") &&
					slices.ContainsFunc(f.Objects, func(path string) bool { return strings.HasSuffix(path, "/shop/harmful") })
			}) {
				t.Errorf("problems %+v", problems)
			}
			if n := lines.Count("resource not built"); n != 2 {
				t.Errorf("%d lines in the log, want one for each of two", n)
			}
			if n := gauge(t, registry, "portolan_xds_failed_resources"); n != 2 {
				t.Errorf("the metric says %v", n)
			}
			settled(t, s, s.Delete(rule))
			xdstest.Eventually(t, "nothing is told of", func() bool {
				return len(failures(s)) == 0 && gauge(t, registry, "portolan_xds_failed_resources") == 0
			})
			late.Await("what could not be built", func(held func(string) map[string]xdstest.Held) bool {
				return held(xdstest.ClusterType)[harmed].Version == before
			})
		})
	}
}

// TestFailuresGoWithTheirProxies: a failure is no longer reported once no connected proxy
// lacks the resource.
func TestFailuresGoWithTheirProxies(t *testing.T) {
	t.Parallel()
	types := catalogue.Types()
	fail := func() (proto.Message, error) { return nil, fmt.Errorf("never") }
	types[0].Generator, types[0].Inbound = fragile{types[0].Generator, false, fail}, fragile{types[0].Inbound, true, fail}
	s := xdstest.NewServer(t, types)
	revision := s.Apply(service("fragile", 9080, "10.0.0.1"), `apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: harmful, namespace: shop}
spec: {host: fragile.shop.example, trafficPolicy: {loadBalancer: {simple: RANDOM}}}
`)
	c := dial(t, s, protocol.StateOfTheWorld, nil)
	settled(t, s, revision)
	if n := len(failures(s)); n != 2 {
		t.Errorf("told of %d", n)
	}
	c.Close()
	xdstest.Eventually(t, "nothing is told of", func() bool { return len(failures(s)) == 0 })
}

// failures returns the problems that name no proxy.
func failures(s *xdstest.Server) []status.Problem {
	return slices.DeleteFunc(s.XDS.Progress().Problems(10), func(t status.Problem) bool { return t.Node != "" })
}

func gauge(t *testing.T, registry *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	t.Fatalf("there is no %s", name)
	return 0
}
