package class_test

import (
	"slices"
	"testing"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/discovery/rows"
	"github.com/portolan-mesh/portolan/xds/mesh/class"
)

// TestAddressesOfClusters: a proxy calls a service at its addresses in the proxy's cluster, else at
// those of the first cluster, and of each at those of its families.
func TestAddressesOfClusters(t *testing.T) {
	t.Parallel()
	in := func(cluster string, vips ...string) *discovery.Service {
		return &discovery.Service{
			Address: vips[0], ClusterVIPs: map[string][]string{cluster: vips}, Attributes: discovery.Attributes{Provider: discovery.Kubernetes},
		}
	}
	declared := &discovery.Service{Address: "10.9.0.1"}
	row := &rows.Service{Services: []*discovery.Service{in("east", "10.96.0.1", "fd00::1"), in("west", "10.96.0.2"), declared}}
	both := class.Shape{IPv4: true, IPv6: true}
	of := func(cluster string, s class.Shape) class.Shape { s.Cluster = cluster; return s }
	for _, c := range []struct {
		name  string
		shape class.Shape
		want  []string
	}{
		{"its own cluster", of("west", both), []string{"10.96.0.2", "10.9.0.1"}},
		{"both families", of("east", both), []string{"10.96.0.1", "fd00::1", "10.9.0.1"}},
		{"one family", of("east", class.Shape{IPv4: true}), []string{"10.96.0.1", "10.9.0.1"}},
		{"another cluster", of("north", both), []string{"10.96.0.1", "fd00::1", "10.9.0.1"}},
		{"no cluster", both, []string{"10.96.0.1", "fd00::1", "10.9.0.1"}},
	} {
		if got := c.shape.Addresses(row); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, not %v", c.name, got, c.want)
		}
	}
	if got, want := class.AllAddresses(row), []string{"10.96.0.1", "fd00::1", "10.9.0.1", "10.96.0.2"}; !slices.Equal(got, want) {
		t.Errorf("all are %v, not %v", got, want)
	}
}
