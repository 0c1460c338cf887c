package serviceentry_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	networking "istio.io/api/networking/v1alpha3"
	"pgregory.net/rapid"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/discovery/serviceentry"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// TestRowsFollowFromTheFinalState runs random histories. The rows published step by step equal
// those of a store that has only seen the last state. No row is published that was there
// already.
func TestRowsFollowFromTheFinalState(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := start(t, serviceentry.Options{Cluster: "c1"})
		for range rapid.IntRange(1, 8).Draw(t, "revisions") {
			next := m.configs
			for range rapid.IntRange(1, 5).Draw(t, "changes") {
				c := drawConfig(t)
				if rapid.IntRange(0, 3).Draw(t, "delete") == 0 {
					next = next.Delete(c.Key().Path())
				} else {
					next = next.Set(c.Key().Path(), c)
				}
			}
			m.publish(next)
		}
		fresh := start(t, serviceentry.Options{Cluster: "c1"})
		fresh.publish(m.configs)
		if diff := cmp.Diff(fresh.xds.Rows(), m.xds.Rows(), cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("(-fresh +step by step)\n%s", diff)
		}
		if diff := cmp.Diff(fresh.store.Services(), m.store.Services()); diff != "" {
			t.Fatalf("services (-fresh +step by step)\n%s", diff)
		}
		if redundant := m.xds.Redundant(); len(redundant) > 0 {
			t.Fatalf("handed over again: %v", redundant)
		}
	})
}

// TestHandlersFollowTheObjects: the events for workload handlers add up to the existing
// WorkloadEntries.
func TestHandlersFollowTheObjects(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		known := map[string]string{}
		services := map[string]bool{}
		m := start(t, serviceentry.Options{}, follow(known, services))
		for range rapid.IntRange(1, 8).Draw(t, "revisions") {
			c := drawConfig(t)
			if rapid.IntRange(0, 2).Draw(t, "delete") == 0 {
				m.remove(c)
			} else {
				m.apply(c)
			}
		}
		want := map[string]string{}
		for c := range m.source.Snapshot().List(schema.WorkloadEntry, "") {
			want[c.Namespace+"/"+c.Name] = c.Spec.(*networking.WorkloadEntry).Address
		}
		if diff := cmp.Diff(want, known); diff != "" {
			t.Fatalf("workloads (-want +told)\n%s", diff)
		}
		if got, want := len(services), len(m.store.Services()); got != want {
			t.Fatalf("handlers know %d services, the store has %d", got, want)
		}
	})
}

func drawConfig(t *rapid.T) *config.Config {
	c := &config.Config{}
	c.Namespace = rapid.SampledFrom([]string{"north", "south"}).Draw(t, "namespace")
	c.CreationTimestamp = time.Unix(rapid.Int64Range(1, 3).Draw(t, "created"), 0)
	if rapid.Bool().Draw(t, "service entry") {
		c.GroupVersionKind = schema.ServiceEntry
		c.Name = fmt.Sprint("se", rapid.IntRange(1, 4).Draw(t, "name"))
		c.Spec = drawServiceEntry(t)
		return c
	}
	c.GroupVersionKind = schema.WorkloadEntry
	c.Name = fmt.Sprint("we", rapid.IntRange(1, 5).Draw(t, "name"))
	c.Labels = drawLabels(t)
	c.Spec = drawWorkload(t)
	return c
}

func drawServiceEntry(t *rapid.T) *networking.ServiceEntry {
	spec := &networking.ServiceEntry{
		Hosts:      rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a.example", "b.example", "*.c.example"}), 1, 2, rapid.ID[string]).Draw(t, "hosts"),
		Addresses:  rapid.SliceOfN(rapid.SampledFrom([]string{"10.1.0.1", "10.1.0.2/32", "10.2.0.0/16"}), 0, 2).Draw(t, "addresses"),
		Resolution: networking.ServiceEntry_Resolution(rapid.Int32Range(0, 4).Draw(t, "resolution")),
		Ports:      []*networking.ServicePort{{Name: "http", Number: rapid.Uint32Range(80, 81).Draw(t, "port")}},
	}
	if rapid.Bool().Draw(t, "two ports") {
		spec.Ports = append(spec.Ports, &networking.ServicePort{Name: "tls", Number: 443, TargetPort: 8443})
	}
	if rapid.Bool().Draw(t, "selects") {
		spec.WorkloadSelector = &networking.WorkloadSelector{Labels: drawLabels(t)}
		return spec
	}
	for range rapid.IntRange(0, 2).Draw(t, "endpoints") {
		spec.Endpoints = append(spec.Endpoints, drawWorkload(t))
	}
	return spec
}

func drawWorkload(t *rapid.T) *networking.WorkloadEntry {
	return &networking.WorkloadEntry{
		Address: rapid.SampledFrom([]string{"10.0.0.1", "10.0.0.2", "vm.example", "unix:///a.sock"}).Draw(t, "address"),
		Labels:  drawLabels(t),
		Weight:  rapid.Uint32Range(0, 2).Draw(t, "weight"),
	}
}

func drawLabels(t *rapid.T) map[string]string {
	return rapid.MapOfN(rapid.SampledFrom([]string{"app", "v"}), rapid.SampledFrom([]string{"1", "2"}), 0, 2).Draw(t, "labels")
}

// follow records what handlers are called with: the addresses of workloads, and the identities
// of services.
func follow(workloads map[string]string, services map[string]bool) func(*serviceentry.Store) {
	return func(s *serviceentry.Store) {
		s.AppendWorkloadHandler(func(w *discovery.WorkloadInstance, event cache.Event) {
			key := w.Namespace + "/" + w.Name
			if workloads[key] = address(w); event == cache.EventDelete {
				delete(workloads, key)
			}
		})
		s.AppendServiceHandler(func(old, curr *discovery.Service, event cache.Event) {
			if event != cache.EventAdd {
				delete(services, identity(old))
			}
			if event != cache.EventDelete {
				services[identity(curr)] = true
			}
		})
	}
}

func identity(s *discovery.Service) string {
	return fmt.Sprint(s.Attributes.Namespace, "/", s.Attributes.Name, "/", s.Hostname, "/", s.Address)
}

// address returns the address in the object that a workload comes from.
func address(w *discovery.WorkloadInstance) string {
	if w.Endpoint.Address[0] == '/' {
		return "unix://" + w.Endpoint.Address
	}
	return w.Endpoint.Address
}
