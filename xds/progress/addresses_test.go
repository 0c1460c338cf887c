package progress

import (
	"slices"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/storage/status"
)

// TestAddressesOfIngresses: the addresses of gateways are in the status of an Ingress once they have
// settled. A gateway that comes and goes each second brings few writes, and one without a change none.
func TestAddressesOfIngresses(t *testing.T) {
	t.Parallel()
	l := newLooker(t)
	class := "istio"
	l.stored.put(&config.Config{Meta: config.Meta{GroupVersionKind: schema.IngressClass, Name: class, UID: "c", ResourceVersion: "1"}, Spec: &networkingv1.IngressClassSpec{Controller: schema.IngressController}})
	ingress := &config.Config{Meta: config.Meta{GroupVersionKind: schema.Ingress, Namespace: "shop", Name: "web", UID: "u", ResourceVersion: "2", Domain: "cluster.local"}, Spec: &networkingv1.IngressSpec{
		IngressClassName: &class, DefaultBackend: &networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: "web", Port: networkingv1.ServiceBackendPort{Number: 80}}},
	}}
	l.stored.put(ingress)
	gateway := func(address string, connected bool) {
		p := &status.Proxy{Node: "router~" + address, Type: "router", Namespace: "istio-system", Addresses: []string{address}, Labels: map[string]string{"istio": "ingressgateway"}}
		if connected {
			p.Replica = "a"
		}
		l.proxies = l.proxies.Set(p.Node, p)
	}
	addresses := func() []string { return l.stored.statuses.Value(ingress.Key().Path()).Addresses }
	facts := using()
	l.looks(40, facts)
	if got := addresses(); len(got) > 0 {
		t.Fatalf("without a gateway there are addresses: %q", got)
	}
	gateway("10.0.0.1", true)
	gateway("10.0.0.2", true)
	l.looks(40, facts)
	if got := addresses(); !slices.Equal(got, []string{"10.0.0.1", "10.0.0.2"}) {
		t.Fatalf("the addresses are %q", got)
	}
	if n := l.looks(40, facts); n > 0 {
		t.Errorf("without a change there were %d writes", n)
	}
	n := 0
	for i := range 60 {
		gateway("10.0.0.2", i%2 == 0)
		n += l.look(facts)
	}
	if n > 3 {
		t.Errorf("in a minute of flaps there were %d writes", n)
	}
	l.looks(40, facts)
	if got := addresses(); !slices.Equal(got, []string{"10.0.0.1"}) {
		t.Errorf("in the end the addresses are %q", got)
	}
	l.queue = newStatusQueue() // another leader
	gateway("10.0.0.1", false)
	l.looks(40, facts)
	if got := addresses(); len(got) > 0 {
		t.Errorf("with no gateway connected the addresses are %q", got)
	}
}
