package kube

import (
	"cmp"
	"slices"
	"time"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/host"
	"github.com/portolan-mesh/portolan/storage/labels"
)

// networkLabel is the label of a pod that names its network. (Istio: label.TopologyNetwork.)
const networkLabel = "topology.istio.io/network"

// converter holds the inputs of the conversion besides the objects.
type converter struct {
	cluster, domain, trustDomain string
}

func (c converter) hostname(s *service) host.Name {
	return host.Name(s.Name + "." + s.Namespace + ".svc." + c.domain)
}

// resolution says how proxies find the endpoints: clients of a headless Service name a pod by its
// address. (Istio: kube.ConvertService.)
func (s *service) resolution() discovery.Resolution {
	switch {
	case s.ExternalName != "":
		return discovery.DNSLB
	case s.Headless:
		return discovery.Passthrough
	}
	return discovery.ClientSideLB
}

// service converts a Service. exportTo replaces its own where it has none.
func (c converter) service(s *service, exportTo []string) *discovery.Service {
	out := &discovery.Service{
		Hostname: c.hostname(s), Address: discovery.UnspecifiedIP, Resolution: s.resolution(), MeshExternal: s.ExternalName != "",
		CreationTime: time.Unix(s.Created, 0).UTC(),
		Attributes: discovery.Attributes{
			Provider: discovery.Kubernetes, Name: s.Name, Namespace: s.Namespace, Labels: s.Labels, LabelSelectors: s.Selector,
			ExportTo:     discovery.ParseVisibility(s.ExportTo, s.Namespace, exportTo),
			ExternalName: host.Name(s.ExternalName),
			Distribution: s.Distribution, NodeLocal: s.NodeLocal,
		},
	}
	if len(s.ClusterIPs) > 0 {
		out.Address = s.ClusterIPs[0]
		out.ClusterVIPs = map[string][]string{c.cluster: s.ClusterIPs}
	}
	if len(s.External) > 0 {
		out.Attributes.ClusterExternalAddresses = map[string][]string{c.cluster: s.External}
	}
	for _, p := range s.Ports {
		out.Ports = append(out.Ports, discovery.Port{Name: p.Name, Number: p.Number, Protocol: p.Protocol})
	}
	return out
}

// externalName returns the endpoints of a Service of the type ExternalName: its other name. Clients that
// see a service of that name do not call them.
func (c converter) externalName(s *service) []*discovery.Endpoint {
	var out []*discovery.Endpoint
	for _, p := range s.Ports {
		out = append(out, &discovery.Endpoint{
			Address: s.ExternalName, Port: p.Number, ServicePortName: p.Name, Weight: 1, TLSMode: discovery.TLSModeDisabled,
			Locality: discovery.Locality{Cluster: c.cluster}, Namespace: s.Namespace, WorkloadName: s.Name,
		})
	}
	return out
}

// workload converts a pod.
func (c converter) workload(p *pod, locality string) *discovery.WorkloadInstance {
	return &discovery.WorkloadInstance{
		Name: p.Name, Namespace: p.Namespace, Provider: discovery.Kubernetes,
		Endpoint: discovery.Endpoint{
			Address: p.Address, Labels: p.Labels, ServiceAccount: shared(discovery.SPIFFE(c.trustDomain, p.Namespace, p.Account)),
			Network:  p.Labels[networkLabel],
			Node:     p.Node,
			Locality: discovery.Locality{Label: cmp.Or(discovery.LocalityOfLabels(p.Labels), locality), Cluster: c.cluster},
			Weight:   1, TLSMode: cmp.Or(p.Labels[labels.TLSMode], discovery.TLSModeDisabled),
			Namespace: p.Namespace, WorkloadName: p.Name,
		},
	}
}

// part converts a slice. Its endpoints are in order. Those that wait for their pods are left out.
func (k *known) part(c converter, s *slice) *part {
	of, _ := k.objects.Value(servicePrefix + serviceKey(s.Namespace, s.Service)).(*service)
	out := &part{}
	for i := range s.Endpoints {
		from := &s.Endpoints[i]
		if k.awaits(s, from) {
			out.awaited = append(out.awaited, from.Pod)
			continue
		}
		base := k.base(c, s, from)
		if of == nil || !of.PublishNotReady {
			base.Health = from.Health
		}
		for _, p := range s.Ports {
			e := base
			e.Port, e.ServicePortName = p.Number, p.Name
			out.endpoints = append(out.endpoints, &e)
		}
	}
	slices.Sort(out.awaited)
	out.awaited = slices.Compact(out.awaited)
	slices.SortFunc(out.endpoints, discovery.CompareEndpoints)
	if of != nil && of.Family != s.Family {
		for _, e := range out.endpoints {
			again := *e
			again.Health = discovery.OutOfUse
			out.again = append(out.again, &again)
		}
	}
	return out
}

// base returns an endpoint without its port. The pod says what it is, and its node where. The pod is the
// one that the slice names, else the one at the address. (Istio: Controller.getPod.)
func (k *known) base(c converter, s *slice, from *endpoint) discovery.Endpoint {
	name := cmp.Or(from.Pod, k.podAt(s.Namespace, from.Address))
	p, _ := k.objects.Value(podPrefix + serviceKey(s.Namespace, name)).(*pod)
	node := from.Node
	if p != nil && node == "" {
		node = p.Node
	}
	locality := cmp.Or(k.locality(node), discovery.LocalityOf("", from.Zone, ""))
	if p == nil {
		return discovery.Endpoint{
			Address: from.Address, Weight: 1, TLSMode: discovery.TLSModeDisabled, Namespace: s.Namespace, WorkloadName: name,
			Locality: discovery.Locality{Label: locality, Cluster: c.cluster}, Node: node,
		}
	}
	out := c.workload(p, locality).Endpoint
	out.Address = from.Address
	return out
}

func (k *known) locality(name string) string {
	if n, _ := k.objects.Value(nodePrefix + name).(*node); n != nil {
		return n.Locality
	}
	return ""
}

// selected returns the endpoints of a workload of another registry for the ports of a Service that
// selects it. A port by a name that the workload does not have is left out.
func selectedEndpoints(s *service, w *discovery.WorkloadInstance) []*discovery.Endpoint {
	var out []*discovery.Endpoint
	for _, p := range s.Ports {
		target := cmp.Or(int(w.PortMap[p.Name]), int(w.PortMap[p.TargetName]), p.Target)
		if target == 0 && p.TargetName == "" {
			target = p.Number
		}
		if target == 0 || p.Protocol == discovery.UDP {
			continue
		}
		e := w.Endpoint
		e.Port, e.ServicePortName = target, p.Name
		out = append(out, &e)
	}
	return out
}

// row returns the row of a Service, empty if there is none.
func (k *known) row(c converter, key string) discovery.Row {
	namespace, name := cutKey(key)
	s, _ := k.objects.Value(servicePrefix + key).(*service)
	if s == nil {
		return discovery.Row{Hostname: c.hostname(&service{Namespace: namespace, Name: name}), Namespace: namespace}
	}
	row := discovery.Row{
		Hostname: c.hostname(s), Namespace: namespace, Services: []*discovery.Service{c.service(s, k.defaultExportTo())},
	}
	if s.ExternalName != "" {
		row.Endpoints = c.externalName(s)
		return row
	}
	row.Endpoints = k.endpoints(key)
	if s.resolution() == discovery.ClientSideLB && k.elsewhere.Value(key) == nil {
		pods := map[string]bool{}
		for _, e := range row.Endpoints {
			pods[e.Address] = true
		}
		for w := range k.selected.Value(key).Values() {
			if !pods[w.Endpoint.Address] {
				row.Endpoints = append(row.Endpoints, selectedEndpoints(s, w)...)
			}
		}
	}
	row.Endpoints = distinct(row.Endpoints)
	return row
}

// endpoints returns the endpoints of the slices of a Service. A pod has one endpoint in use: at its
// address of the Service's first family, if it has one there. Those at its other addresses say who is
// there. An endpoint that is no pod is one at each of its addresses. (Istio: updateEndpointCacheForSlice,
// where a pod with addresses of both families is one endpoint.)
func (k *known) endpoints(key string) (out []*discovery.Endpoint) {
	var parts []*part
	twice := false
	for _, of := range k.built.Prefix(key + "/") {
		parts, twice = append(parts, of), twice || of.again != nil
	}
	type port struct{ pod, name string }
	first := map[port]bool{} // what pods serve in the first family, if there is another
	for _, of := range parts {
		for _, e := range of.endpoints {
			if twice && of.again == nil && e.WorkloadName != "" {
				first[port{e.WorkloadName, e.ServicePortName}] = true
			}
		}
	}
	for _, of := range parts {
		for i, e := range of.endpoints {
			if of.again != nil && first[port{e.WorkloadName, e.ServicePortName}] {
				e = of.again[i]
			}
			out = append(out, e)
		}
	}
	return out
}

// distinct keeps the first endpoint of each address and port: slices may share one while a cluster
// moves it, and so may several WorkloadEntries. Of those in use and out of use it keeps one in use.
func distinct(in []*discovery.Endpoint) []*discovery.Endpoint {
	type identity struct {
		address, name string
		port          int
	}
	places := make(map[identity]int, len(in))
	out := make([]*discovery.Endpoint, 0, len(in))
	for _, e := range in {
		id := identity{e.Address, e.ServicePortName, e.Port}
		at, met := places[id]
		switch {
		case !met:
			places[id] = len(out)
			out = append(out, e)
		case out[at].Health == discovery.OutOfUse && e.Health != discovery.OutOfUse:
			out[at] = e
		}
	}
	return out
}
