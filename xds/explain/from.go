package explain

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/discovery/rows"
	"github.com/portolan-mesh/portolan/discovery/serviceentry"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/labels"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/xds/mesh"
)

// proxyFrom finds the proxy that a text names. A connected proxy goes first: by its node id,
// name, namespace/name or address. Otherwise it makes a hypothetical one: the sidecar of a
// WorkloadEntry (namespace/name) or at an address. A Gateway (gateway/namespace/name) stands for
// the first connected router that it selects, in the order of node ids, or a hypothetical one.
func proxyFrom(p *mesh.PushContext, nodes []*discovery.Proxy, from string) (proxy *discovery.Proxy, connected bool, err error) {
	if name, ok := strings.CutPrefix(from, "gateway/"); ok {
		g := objectNamed(p, schema.Gateway, name)
		if len(g) != 1 {
			return nil, false, fmt.Errorf("there is no Gateway %s: use gateway/NAMESPACE/NAME", name)
		}
		if found := routerRunning(g[0], nodes); found != nil {
			whole := *found
			whole.RouteDelta = false
			return &whole, true, nil
		}
		return routerOf(g[0]), false, nil
	}
	var found []*discovery.Proxy
	for _, n := range nodes {
		if n.IsNamed(from) {
			found = append(found, n)
		}
	}
	if len(found) == 0 {
		for _, object := range objectNamed(p, schema.WorkloadEntry, from) {
			found = append(found, sidecarOf(object))
		}
		if _, err := netip.ParseAddr(from); err == nil {
			found = sidecarsAt(p, from)
		}
	} else {
		connected = true
	}
	switch {
	case len(found) == 0:
		return nil, false, fmt.Errorf("no proxy, WorkloadEntry or address of an endpoint is called %s: see portolan proxy status; "+
			"or name a Gateway as gateway/NAMESPACE/NAME", from)
	case len(found) > 1:
		return nil, false, fmt.Errorf("%d proxies are called %s, such as %s and %s: name one by its node id", len(found), from, found[0].ID, found[1].ID)
	}
	whole := *found[0]
	whole.RouteDelta = false // RouteDelta changes only how it gets its virtual hosts
	return &whole, connected, nil
}

// objectNamed returns the objects of a kind that a text names: namespace/name, or a name in any
// namespace.
func objectNamed(p *mesh.PushContext, kind config.GroupVersionKind, text string) (out []*config.Config) {
	namespace, name, ok := strings.Cut(text, "/")
	if !ok {
		namespace, name = "", text
	}
	for object := range p.Inputs().Configs.List(kind, namespace) {
		if object.Name == name {
			out = append(out, object)
		}
	}
	return out
}

// newProxy describes a hypothetical proxy.
func newProxy(kind discovery.ProxyType, ip, name, namespace string) *discovery.Proxy {
	domain := namespace + ".svc.cluster.local"
	return &discovery.Proxy{
		ID: string(kind) + "~" + ip + "~" + name + "." + namespace + "~" + domain, Type: kind, IPAddresses: []string{ip},
		Name: name + "." + namespace, DNSDomain: domain, Namespace: namespace, InterceptionMode: discovery.InterceptionNone,
	}
}

// noAddress stands for the address of a hypothetical proxy that has none. No endpoint counts as
// running there.
const noAddress = "127.0.0.1"

// routerRunning returns the first connected router that a Gateway selects, of its own namespace if
// there is one; nil if there is none.
func routerRunning(gateway *config.Config, nodes []*discovery.Proxy) *discovery.Proxy {
	selector := labels.Instance(gateway.Spec.(*networking.Gateway).GetSelector())
	var out *discovery.Proxy
	for _, n := range nodes {
		own := n.Namespace == gateway.Namespace
		switch {
		case n.Type != discovery.Router || !selector.SubsetOf(n.Labels(nil)):
		case out == nil, own && out.Namespace != gateway.Namespace, own == (out.Namespace == gateway.Namespace) && n.ID < out.ID:
			out = n
		}
	}
	return out
}

func routerOf(gateway *config.Config) *discovery.Proxy {
	out := newProxy(discovery.Router, noAddress, gateway.Name, gateway.Namespace)
	out.MetadataLabels = gateway.Spec.(*networking.Gateway).GetSelector()
	return out
}

func sidecarOf(workload *config.Config) *discovery.Proxy {
	spec := workload.Spec.(*networking.WorkloadEntry)
	ip := spec.GetAddress()
	if _, err := netip.ParseAddr(ip); err != nil {
		ip = noAddress
	}
	out := newProxy(discovery.Sidecar, ip, workload.Name, workload.Namespace)
	out.MetadataLabels, out.Locality = serviceentry.LabelsOf(&workload.Meta, spec), spec.GetLocality()
	return out
}

// sidecarsAt returns hypothetical sidecars at an address: one for each WorkloadEntry with the
// address, else one for each namespace whose services have an endpoint there.
func sidecarsAt(p *mesh.PushContext, ip string) (out []*discovery.Proxy) {
	for object := range p.Inputs().Configs.List(schema.WorkloadEntry, "") {
		if object.Spec.(*networking.WorkloadEntry).GetAddress() == ip {
			out = append(out, sidecarOf(object))
		}
	}
	if len(out) > 0 {
		return out
	}
	var seen []string
	for key := range p.Instances(ip).Keys() {
		if _, namespace := rows.SplitKey(key); !slices.Contains(seen, namespace) {
			seen = append(seen, namespace)
			out = append(out, newProxy(discovery.Sidecar, ip, ip, namespace))
		}
	}
	return out
}
