package admin

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/discovery/serviceentry"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/host"
	"github.com/portolan-mesh/portolan/storage/labels"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/mesh/routing"
)

// link is a field of an object that refers to others: to an object of a kind, a host, a subset
// of a host, or workloads by their labels.
type link struct {
	field string
	free  bool // it may refer to nothing, as the host of a gateway may

	kind            config.GroupVersionKind // of the objects that it refers to; for a host the ServiceEntry
	namespace, name string
	host            host.Name // completed, in lower case; may be a pattern
	subset          string
	selector        labels.Instance
}

// linksOf returns the links of an object, in the order of its fields.
func linksOf(object *config.Config) []link {
	switch spec := object.Spec.(type) {
	case *networking.VirtualService:
		return linksOfRoutes(object, spec)
	case *networking.DestinationRule:
		return []link{hostLink(object, "spec.host", spec.GetHost())}
	case *networking.ServiceEntry:
		if selector := spec.GetWorkloadSelector().GetLabels(); len(selector) > 0 {
			return []link{{field: "spec.workloadSelector", kind: schema.WorkloadEntry, selector: selector}}
		}
	}
	return nil
}

func linksOfRoutes(object *config.Config, spec *networking.VirtualService) []link {
	var out []link
	for i, h := range spec.GetHosts() {
		l := hostLink(object, fmt.Sprintf("spec.hosts[%d]", i), h)
		l.free = true
		out = append(out, l)
	}
	out = append(out, gatewayLinks(object, "spec.gateways", spec.GetGateways())...)
	addHost := func(field string, d *networking.Destination) {
		if d.GetHost() == "" {
			return
		}
		l := hostLink(object, field+".host", d.GetHost())
		out = append(out, l)
		if d.GetSubset() != "" {
			l.field, l.kind, l.subset = field+".subset", schema.DestinationRule, d.GetSubset()
			out = append(out, l)
		}
	}
	for i, r := range spec.GetHttp() {
		at := fmt.Sprintf("spec.http[%d]", i)
		for j, m := range r.GetMatch() {
			out = append(out, gatewayLinks(object, fmt.Sprintf("%s.match[%d].gateways", at, j), m.GetGateways())...)
		}
		if d := r.GetDelegate(); d != nil {
			out = append(out, link{field: at + ".delegate", kind: schema.VirtualService, namespace: cmp.Or(d.GetNamespace(), object.Namespace), name: d.GetName()})
		}
		for j, d := range r.GetRoute() {
			addHost(fmt.Sprintf("%s.route[%d].destination", at, j), d.GetDestination())
		}
		addHost(at+".mirror", r.GetMirror())
		for j, m := range r.GetMirrors() {
			addHost(fmt.Sprintf("%s.mirrors[%d].destination", at, j), m.GetDestination())
		}
	}
	for i, r := range spec.GetTcp() {
		for j, d := range r.GetRoute() {
			addHost(fmt.Sprintf("spec.tcp[%d].route[%d].destination", i, j), d.GetDestination())
		}
	}
	for i, r := range spec.GetTls() {
		for j, d := range r.GetRoute() {
			addHost(fmt.Sprintf("spec.tls[%d].route[%d].destination", i, j), d.GetDestination())
		}
	}
	return out
}

func gatewayLinks(object *config.Config, field string, names []string) (out []link) {
	for i, name := range names {
		if name == mesh.MeshGateway {
			continue
		}
		namespace, short, _ := strings.Cut(routing.GatewayName(name, object.Namespace), "/")
		out = append(out, link{field: fmt.Sprintf("%s[%d]", field, i), kind: schema.Gateway, namespace: namespace, name: short})
	}
	return out
}

func hostLink(object *config.Config, field, name string) link {
	full := host.Resolve(name, object.Namespace, object.Domain)
	return link{field: field, kind: schema.ServiceEntry, host: host.Name(strings.ToLower(string(full)))}
}

// names reports whether the host of a link and another are equal, or one is a pattern that
// covers the other.
func (l link) names(other host.Name) bool {
	other = host.Name(strings.ToLower(string(other)))
	return l.host.SubsetOf(other) || other.SubsetOf(l.host)
}

func (l link) leadsTo(object, from *config.Config) bool {
	switch spec := object.Spec.(type) {
	case *networking.ServiceEntry:
		return l.host != "" && l.subset == "" && slices.ContainsFunc(spec.GetHosts(), func(h string) bool { return l.names(host.Name(h)) })
	case *networking.DestinationRule:
		return l.subset != "" && l.names(hostLink(object, "", spec.GetHost()).host) &&
			slices.ContainsFunc(spec.GetSubsets(), func(s *networking.Subset) bool { return s.GetName() == l.subset })
	case *networking.WorkloadEntry:
		return l.selector != nil && object.Namespace == from.Namespace && l.selector.SubsetOf(serviceentry.LabelsOf(&object.Meta, object.Spec.(*networking.WorkloadEntry)))
	}
	return l.name != "" && object.GroupVersionKind == l.kind && object.Namespace == l.namespace && object.Name == l.name
}
