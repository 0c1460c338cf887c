package claim_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/storage/claim"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/host"
)

// TestOf: the hosts that each kind speaks for, with their fields.
func TestOf(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		spec any
		want []string
	}{
		"a VirtualService": {
			&networking.VirtualService{Hosts: []string{"reviews", "*.B.example", "10.0.0.1"}},
			[]string{"spec.hosts[0] reviews.a.svc.mesh.local", "spec.hosts[1] *.b.example", "spec.hosts[2] 10.0.0.1"},
		},
		"a delegate":        {&networking.VirtualService{}, nil},
		"a DestinationRule": {&networking.DestinationRule{Host: "Reviews"}, []string{"spec.host reviews.a.svc.mesh.local"}},
		// Short names of ServiceEntries are whole hosts in Istio.
		"a ServiceEntry": {&networking.ServiceEntry{Hosts: []string{"api", "B.example"}}, []string{"spec.hosts[0] api", "spec.hosts[1] b.example"}},
		"a Gateway": {
			&networking.Gateway{Servers: []*networking.Server{{Hosts: []string{"x.example", "*/y.example"}}, {Hosts: []string{"./z.example", "b/*"}}}},
			[]string{"spec.servers[0].hosts[0] x.example", "spec.servers[0].hosts[1] y.example", "spec.servers[1].hosts[0] z.example within a", "spec.servers[1].hosts[1] * within b open"},
		},
		"a Sidecar": {&networking.Sidecar{Egress: []*networking.IstioEgressListener{{Hosts: []string{"b/api.b.example"}}}}, nil},
	} {
		var got []string
		for _, one := range claim.Of(&config.Config{Meta: config.Meta{Namespace: "a", Domain: "mesh.local"}, Spec: c.spec}) {
			text := fmt.Sprintf("%s %s", one.Field, one.Host)
			if one.Within != "" {
				text += " within " + one.Within
			}
			if one.Open {
				text += " open"
			}
			got = append(got, text)
		}
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
	if claim.Of(nil) != nil {
		t.Error("no object speaks for a host")
	}
}

// TestCrosses: a claim crosses if it covers a host of another namespace, but for a Gateway that
// takes the owner's routes alone.
func TestCrosses(t *testing.T) {
	t.Parallel()
	if (claim.Claim{Host: "*.example", Open: true}).Crosses("a", claim.Owner{Host: "x.example", Namespace: "b"}) {
		t.Error("a pattern of a Gateway takes a host")
	}
	for _, c := range []struct {
		claim, within, owner string
		want                 bool
	}{
		{"x.example", "", "b", true},
		{"x.example", "", "a", false},
		{"*.example", "", "b", true},
		{"*", "", "b", true},
		{"y.example", "", "b", false},
		{"*", "b", "b", false},
		{"x.example", "a", "b", true},
	} {
		one := claim.Claim{Host: host.Name(c.claim), Within: c.within}
		if got := one.Crosses("a", claim.Owner{Host: "x.example", Namespace: c.owner}); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

// TestAllows: a HostGrant is for its kinds, namespaces and hosts.
func TestAllows(t *testing.T) {
	t.Parallel()
	grant := &claim.HostGrant{
		From: []claim.From{{Kind: "VirtualService", Namespace: "a"}, {Kind: "Gateway", Namespace: "edge"}},
		To:   []claim.To{{Hosts: []string{"x.example"}}, {Hosts: []string{"*.api.example"}}},
	}
	for _, c := range []struct {
		kind, namespace string
		host            host.Name
		want            bool
	}{
		{"VirtualService", "a", "x.example", true},
		{"VirtualService", "a", "y.api.example", true},
		{"Gateway", "edge", "*.api.example", true},
		{"Gateway", "edge", "*.example", false},
		{"Gateway", "a", "x.example", false},
		{"VirtualService", "edge", "x.example", false},
		{"VirtualService", "a", "y.example", false},
	} {
		if got := grant.Allows(c.kind, c.namespace, c.host); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

// TestRights: an object of the store is entitled to what was found with its last write.
func TestRights(t *testing.T) {
	t.Parallel()
	right := func(h host.Name, namespace string) claim.Right { return claim.Right{Namespace: namespace, Host: h} }
	plain := &config.Config{Meta: config.Meta{Annotations: map[string]string{"a": "b"}}}
	object := claim.WithRights(plain, []claim.Right{right("*.example", "b"), right("x.example", "a"), right("*.example", "b")})
	if got := object.Annotations[claim.RightsAnnotation]; got != "a/x.example,b/*.example" || len(plain.Annotations) != 1 {
		t.Errorf("annotations %q, and %v before", got, plain.Annotations)
	}
	for _, c := range []struct {
		claimed, owned host.Name
		owner          string
		want           bool
	}{
		{"x.example", "x.example", "a", true},
		{"*.example", "x.example", "a", true}, // a pattern, of which the writer had the right to one host
		{"*.example", "y.example", "a", false},
		{"*.example", "y.example", "b", true},
		{"y.example", "y.example", "b", false},
		{"x.example", "x.example", "c", false},
	} {
		if got := claim.Entitled(object, c.claimed, claim.Owner{Host: c.owned, Namespace: c.owner}); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
	elsewhere, x := *object, claim.Owner{Host: "x.example", Namespace: "a"}
	if elsewhere.Source = "dir"; claim.Entitled(&elsewhere, "x.example", x) || claim.Entitled(plain, "x.example", x) {
		t.Error("an object of another source, or without rights, has rights")
	}
	if again := claim.WithRights(object, nil); len(again.Annotations) != 1 || claim.WithRights(plain, nil) != plain {
		t.Errorf("without rights: %v", again.Annotations)
	}
	if bare := claim.WithRights(claim.WithRights(&config.Config{}, []claim.Right{right("x.example", "a")}), nil); bare.Annotations != nil {
		t.Errorf("nothing left: %v", bare.Annotations)
	}
}
