package xds_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/discovery/aggregate"
	"github.com/portolan-mesh/portolan/discovery/memory"
	"github.com/portolan-mesh/portolan/discovery/serviceentry"
)

// TestRemovedRegistryLeavesTheOthers: a ServiceEntry and two registries know the same host.
// After one registry is removed, the rows and resources are those that there would be
// without it, byte by byte.
func TestRemovedRegistryLeavesTheOthers(t *testing.T) {
	t.Parallel()
	service := func(name string) *discovery.Service {
		return &discovery.Service{
			Hostname: "a.example", Address: discovery.UnspecifiedIP,
			Ports:      []discovery.Port{{Name: "http", Number: 80, Protocol: discovery.HTTP}},
			Attributes: discovery.Attributes{Name: name, Namespace: "shop"},
		}
	}
	endpoint := func(ip string) *discovery.Endpoint {
		return &discovery.Endpoint{Address: ip, Port: 80, ServicePortName: "http", Weight: 1, Namespace: "shop"}
	}
	start := func() *replica {
		r := newReplica(t, serviceentry.Switches{})
		r.set(objectOf(t, "ServiceEntry", "shop/a",
			`{hosts: [a.example], ports: [{number: 80, name: http, protocol: HTTP}], resolution: STATIC, endpoints: [{address: 10.0.0.1}]}`, 1))
		r.commit()
		r.memory.AddService(service("m"))
		r.memory.SetEndpoints("a.example", "shop", endpoint("10.0.0.2"))
		r.push()
		return r
	}
	never, r := start(), start()
	more := memory.New(memory.Options{Cluster: "m2", XDS: updater{r}, Worker: r.worker})
	registries := aggregate.New(aggregate.Options{XDS: updater{r}, Worker: r.worker})
	for _, instance := range []discovery.Instance{r.entries, r.memory, more} {
		if err := registries.Add(instance); err != nil {
			t.Fatal(err)
		}
	}
	more.AddService(service("m2"))
	more.SetEndpoints("a.example", "shop", endpoint("10.0.0.3"))
	if request, _ := r.push(); !request.Full {
		t.Error("another service of the host is no full push")
	}
	if cmp.Equal(r.versions(), never.versions()) {
		t.Fatal("what the third registry knows has no effect")
	}
	if err := registries.Remove(discovery.ShardKey{Provider: discovery.Memory, Cluster: "m2"}); err != nil {
		t.Fatal(err)
	}
	r.push()
	if diff := cmp.Diff(never.rows(), r.rows()); diff != "" {
		t.Errorf("rows (-without it, +after its removal)\n%s", diff)
	}
	if diff := cmp.Diff(never.versions(), r.versions()); diff != "" {
		t.Errorf("versions (-without it, +after its removal)\n%s", diff)
	}
}
