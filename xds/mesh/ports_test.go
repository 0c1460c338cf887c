package mesh_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/mesh/service"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// claiming writes a service with one port.
func claiming(name, port, more string) string {
	return xdstest.Object("ServiceEntry", name, fmt.Sprintf(
		"{hosts: [%s.example], resolution: STATIC, ports: [{number: %s}], %s}", name[len("shop/"):], port, more))
}

// TestClaims: the services with each use of a port, the oldest first, as far as the proxy
// sees them.
func TestClaims(t *testing.T) {
	t.Parallel()
	w := xdstest.NewWorld(t,
		claiming("shop/z-old", "80, name: tcp, protocol: TCP", "exportTo: ['*']"),
		claiming("shop/own", "80, name: tcp, protocol: TCP", "exportTo: ['.']"),
		claiming("shop/a-young", "80, name: plain", "exportTo: ['*']"),
		claiming("shop/vip", "80, name: tcp, protocol: TCP", "addresses: [10.9.0.1]"),
		claiming("shop/given", "80, name: tcp, protocol: TCP", "exportTo: ['*']"),
		claiming("shop/range", "80, name: tcp, protocol: TCP", "addresses: [10.8.0.0/16, 10.7.0.1]"),
		claiming("shop/web", "80, name: http, protocol: HTTP", "addresses: [10.9.0.2]"),
		claiming("shop/dns", "80, name: udp, protocol: UDP", "exportTo: ['*']"),
	)
	w.Assign("shop", "given.example", "240.240.0.9")
	for _, tc := range []struct {
		claim     service.PortUse
		namespace string
		want      []string
	}{
		{service.PortHTTP, "shop", []string{"web"}},
		{service.PortTCP, "shop", []string{"z-old", "own", "a-young", "vip", "given", "range"}},
		{service.PortTCP, "edge", []string{"z-old", "a-young", "vip", "given", "range"}},
		{service.PortOpen, "shop", []string{"z-old", "own", "a-young"}},
		{service.PortUndeclared, "shop", []string{"a-young"}},
		{service.PortRange, "shop", []string{"range"}},
	} {
		v := w.View(xdstest.Node{Namespace: tc.namespace})
		var got []string
		for s := range v.ServicesOnPort(v.Egress()[0], tc.claim, 80) {
			got = append(got, s.Service().Attributes.Name)
		}
		if d := cmp.Diff(tc.want, got); d != "" {
			t.Errorf("%s from %s (-want +got):\n%s", tc.claim, tc.namespace, d)
		}
		if l := v.Egress()[0]; !v.PortUsed(l, tc.claim, 80) || v.PortUsed(l, tc.claim, 81) {
			t.Errorf("%s from %s: PortUsed of 80 %v, of 81 %v", tc.claim, tc.namespace, v.PortUsed(l, tc.claim, 80), v.PortUsed(l, tc.claim, 81))
		}
	}
}

// TestOneServiceOnAPortIsEnough: a reader that learns that a port is used depends on one
// service.PortUser, whatever others come and go. A reader that learns that it is unused
// depends on all that come.
func TestOneServiceOnAPortIsEnough(t *testing.T) {
	t.Parallel()
	var documents []string
	for i := range 50 {
		documents = append(documents, claiming(fmt.Sprintf("shop/s%d", i), "80, name: http, protocol: HTTP", "exportTo: ['*']"))
	}
	hidden := claiming("shop/hidden", "81, name: http, protocol: HTTP", "exportTo: ['.']")
	w := xdstest.NewWorld(t, append(documents, hidden)...)
	node := xdstest.Node{Namespace: "edge"}
	ask := func(port int) (bool, []mesh.Dependency) {
		v := w.View(node).Recording()
		claimed := v.PortUsed(w.View(node).Egress()[0], service.PortHTTP, port)
		return claimed, v.Dependencies()
	}
	holds := func(reads []mesh.Dependency) bool {
		v := w.View(node)
		for _, r := range reads {
			if v.Answer(r.Query) != r.Answer {
				return false
			}
		}
		return true
	}

	claimed, reads := ask(80)
	if !claimed || len(reads) != 1 {
		t.Fatalf("port 80: claimed %v by %d reads", claimed, len(reads))
	}
	w.Apply(claiming("shop/more", "80, name: http, protocol: HTTP", "exportTo: ['*']"))
	w.Delete("serviceentry/shop/s7")
	if !holds(reads) {
		t.Error("port 80 is asked for again, as others come and go")
	}
	w.Delete("serviceentry/shop/s0")
	if holds(reads) {
		t.Error("port 80 is not asked for again, though the one that claimed it went")
	}

	claimed, none := ask(81)
	if claimed {
		t.Fatal("port 81 is claimed by a service that is not seen")
	}
	w.Apply(claiming("shop/hidden", "81, name: http, protocol: HTTP", "exportTo: ['*']"))
	if now, _ := ask(81); !now || holds(none) {
		t.Errorf("port 81, whose service is seen now: claimed %v, asked for again %v", now, !holds(none))
	}
	_, none = ask(82)
	w.Apply(claiming("shop/first", "82, name: http, protocol: HTTP", "exportTo: ['*']"))
	if holds(none) {
		t.Error("port 82 is not asked for again, though somebody claims it now")
	}
}
