package cluster

import (
	"cmp"
	"iter"
	"maps"
	"net/netip"
	"slices"

	meshv1alpha1 "istio.io/api/mesh/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/health"
	"github.com/portolan-mesh/portolan/storage/host"
	"github.com/portolan-mesh/portolan/storage/labels"
	"github.com/portolan-mesh/portolan/xds/envoy/upstream"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/mesh/destination"
	"github.com/portolan-mesh/portolan/xds/mesh/peer"
	"github.com/portolan-mesh/portolan/xds/names"
)

// Outbound is what an outbound cluster stands for: one port of a service, or of a subset
// of its endpoints, as a view sees it.
type Outbound struct {
	Service *mesh.ServiceRow
	Port    discovery.Port
	// Rule is the DestinationRule that applies, nil for none; Subset is one of
	// its subsets, nil for the whole service.
	Rule   *destination.Rule
	Subset *networking.Subset
	// baseline is the traffic policy of the mesh, nil for none. A rule overrides it block by block.
	baseline *meshv1alpha1.MeshConfig_DefaultTrafficPolicy
	// Passes: the cluster gets clients' TLS unchanged and originates none.
	Passes bool
}

// Find returns what an outbound cluster's name stands for; false if the view has nothing
// of that name.
func Find(v *mesh.View, name string) (Outbound, bool) {
	row, ref, passes := serviceNamed(v, name)
	if row == nil {
		return Outbound{}, false
	}
	port, ok := row.Port(int(ref.Port))
	if !ok || !port.Protocol.IsServed() {
		return Outbound{}, false
	}
	if v.Shape().Type == discovery.Proxyless && row.Service().Resolution == discovery.DynamicDNS {
		return Outbound{}, false // gRPC has nothing like it
	}
	o := Outbound{Service: row, Port: port, Rule: v.Rule(row), Passes: passes, baseline: v.Mesh(mesh.DefaultTrafficPolicy).GetDefaultTrafficPolicy()}
	if ref.Subset == "" {
		return o, true
	}
	o.Subset = o.Rule.Subset(ref.Subset)
	return o, o.Subset != nil
}

// serviceNamed returns the service in a cluster's name, nil for none, and whether the cluster
// gets clients' TLS unchanged.
func serviceNamed(v *mesh.View, name string) (s *mesh.ServiceRow, ref names.ClusterRef, passes bool) {
	if ref, passes = names.ParseSNICluster(name); passes {
		return v.PassedService(host.Name(ref.Host)), ref, true
	}
	ref, ok := names.ParseCluster(name)
	if !ok || names.Cluster(names.Outbound, ref.Port, ref.Subset, ref.Host) != name {
		return nil, ref, false
	}
	return v.Service(host.Name(ref.Host)), ref, false
}

// Policy returns the traffic policy that applies, nil for none.
func (o Outbound) Policy() *networking.TrafficPolicy {
	policy := o.Rule.PolicyFor(o.Subset.GetName(), o.Port.Number)
	if o.baseline == nil {
		return policy
	}
	return &networking.TrafficPolicy{
		ConnectionPool:   cmp.Or(policy.GetConnectionPool(), o.baseline.GetConnectionPool()),
		OutlierDetection: cmp.Or(policy.GetOutlierDetection(), o.baseline.GetOutlierDetection()),
		LoadBalancer:     policy.GetLoadBalancer(), Tls: policy.GetTls(), PortLevelSettings: policy.GetPortLevelSettings(),
		Tunnel: policy.GetTunnel(), ProxyProtocol: policy.GetProxyProtocol(), RetryBudget: policy.GetRetryBudget(),
	}
}

// Type says how a proxy of the shape finds the endpoints. A gRPC client connects only to
// endpoints that it knows, and resolves only one host name per cluster.
func (o Outbound) Type(shape mesh.Shape) upstream.ClusterType {
	if shape.Type == discovery.Proxyless {
		if o.Service.Service().Resolution.IsDNS() {
			return upstream.LogicalDNS
		}
		return upstream.EDS
	}
	if o.Service.Service().Resolution == discovery.DynamicDNS {
		return upstream.DynamicDNS
	}
	if o.Policy().GetLoadBalancer().GetSimple() == networking.LoadBalancerSettings_PASSTHROUGH {
		return upstream.OriginalDst
	}
	switch o.Service.Service().Resolution {
	case discovery.DNSLB:
		return upstream.StrictDNS
	case discovery.DNSRoundRobinLB:
		return upstream.LogicalDNS
	case discovery.Passthrough:
		if shape.Type != discovery.Router { // a gateway has no original destination
			return upstream.OriginalDst
		}
	}
	return upstream.EDS
}

// Selection decides which endpoints of a locality the cluster has, and in which form. It is
// comparable: equal Selections make the same of the same endpoints.
type Selection struct {
	port    discovery.Port
	subset  string
	kind    upstream.ClusterType
	healths healths
	check   health.Check
	// proxyless: gRPC clients read no metadata.
	proxyless bool
	// encrypts: a gRPC client calls only endpoints that take mutual TLS of the mesh, by peers.
	encrypts bool
	// mutual: the proxy can speak mutual TLS of the mesh, which peers decides for each
	// endpoint.
	mutual bool
	peers  peer.Scope
	// local: only endpoints on this node, of this cluster if the proxy is in one.
	local         bool
	node, cluster string
}

// Selection returns the Selection of the cluster.
func (o Outbound) Selection(v *mesh.View) Selection {
	shape := v.Shape()
	s := Selection{
		port: o.Port, subset: labels.Instance(o.Subset.GetLabels()).String(), kind: o.Type(shape), healths: o.healths(), check: o.check(),
		proxyless: shape.Type == discovery.Proxyless,
	}
	s.encrypts = s.proxyless && o.Policy().GetTls() == nil && o.tls(v) != nil
	s.mutual = !s.proxyless && !o.Passes && v.HasCertificate()
	if s.encrypts || s.mutual {
		s.peers = v.Peers(o.Service.Namespace)
	}
	if o.Service.Service().Attributes.NodeLocal {
		s.local, s.node, s.cluster = true, v.Node(), shape.Cluster
	}
	return s
}

// isHere says whether the cluster may have an endpoint, by where it is.
func (s Selection) isHere(e *discovery.Endpoint) bool {
	return !s.local || e.Node == s.node && (s.node == "" || s.cluster == "" || s.cluster == e.Locality.Cluster)
}

// Localities groups the endpoints by locality. It takes those that serve the port, belong
// to the subset, are where they may be, and are admitted by their health (health.go) and the cluster's type. EDS
// admits IP addresses and sockets; a type whose endpoints the proxy resolves admits IP
// addresses and host names.
func (s Selection) Localities(endpoints []*discovery.Endpoint) []upstream.Endpoints {
	selector := labels.Parse(s.subset)
	byLabel := map[string][]upstream.Endpoint{}
	for _, e := range endpoints {
		status, sent := s.healths.statusOf(e)
		if !e.IsFor(s.port) || !sent || !selector.SubsetOf(e.Labels) || !admits(s.kind, e.Address) || !s.isHere(e) {
			continue
		}
		if s.kind == upstream.LogicalDNS && e.Health != discovery.Healthy || s.encrypts && !takesGRPC(s.peers, s.port, e) {
			continue
		}
		label := e.Locality.Label
		made := upstream.Endpoint{Host: e.Address, Port: uint32(e.Port), Weight: e.Weight, Health: status}
		if !s.proxyless {
			made.Metadata.Workload = workloadOf(e)
			made.Unchecked = s.check != (health.Check{}) && e.Check != s.check
		}
		if s.mutual && takesTLS(s.peers, e) {
			made.Metadata.TLSMode = discovery.TLSModeIstio
		}
		byLabel[label] = append(byLabel[label], made)
		if s.kind == upstream.LogicalDNS {
			break // it has one
		}
	}
	var out []upstream.Endpoints
	for _, label := range slices.Sorted(maps.Keys(byLabel)) {
		out = append(out, upstream.Endpoints{Locality: label, Endpoints: byLabel[label]})
	}
	return out
}

func admits(kind upstream.ClusterType, address string) bool {
	if kind != upstream.EDS {
		return !names.IsUnix(address)
	}
	_, err := netip.ParseAddr(address)
	return err == nil || names.IsUnix(address)
}

// Names iterates over the outbound clusters that may appear or disappear because of d.
func Names(v *mesh.View, d mesh.Delta) iter.Seq[string] {
	return func(yield func(string) bool) {
		_ = hostNames(v, d, yield) && (d.Whole || ruleNames(v, d, yield) && importNames(v, d, yield))
	}
}

// hostNames yields the clusters of changed hosts, from before and after the change.
func hostNames(v *mesh.View, d mesh.Delta, yield func(string) bool) bool {
	for c := range d.Hosts() {
		if d.Whole && !v.Sees(c.New) {
			continue
		}
		if !rowNames(v, c.Old, yield) || !rowNames(v, c.New, yield) {
			return false
		}
	}
	return true
}

// ruleNames yields the clusters of hosts whose DestinationRules changed. Another rule, of
// another namespace or a wider pattern, may apply now. So it yields all subsets of the
// rule that applies now and of both versions of the changed rules. It is the same with hosts for
// which rules of a pattern count now, or do not; of those that do not, the clusters that are there have
// read the rule.
func ruleNames(v *mesh.View, d mesh.Delta, yield func(string) bool) bool {
	for c := range d.Rules() {
		for row := range d.HostsMatching(c.Key) {
			if !rowNames(v, row, yield) || !subsetNames(v, row, c.Old, yield) || !subsetNames(v, row, c.New, yield) {
				return false
			}
		}
	}
	for row := range d.Consents() {
		if !rowNames(v, row, yield) {
			return false
		}
	}
	return true
}

// importNames yields the clusters of hosts that a restricted scope may have begun or
// ceased to import through a VirtualService.
func importNames(v *mesh.View, d mesh.Delta, yield func(string) bool) bool {
	for row := range v.ImportedHosts(d) {
		if !rowNames(v, row, yield) {
			return false
		}
	}
	return true
}

// rowNames yields the clusters of a host, with the subsets that apply to it.
func rowNames(v *mesh.View, row *mesh.HostRow, yield func(string) bool) bool {
	if row == nil {
		return true
	}
	for _, s := range row.Services {
		subsets := []string{""}
		if rule := v.Rule(s); rule != nil {
			for _, subset := range rule.Subsets {
				subsets = append(subsets, subset.GetName())
			}
		}
		if !portNames(v, s, subsets, yield) {
			return false
		}
	}
	return true
}

// subsetNames yields the clusters that the subsets in a row of rules would make for a
// host.
func subsetNames(v *mesh.View, row *mesh.HostRow, rules *mesh.RuleRow, yield func(string) bool) bool {
	if rules == nil {
		return true
	}
	var subsets []string
	for _, r := range rules.Rules {
		for _, s := range r.Subsets {
			subsets = append(subsets, s.GetName())
		}
	}
	for _, s := range row.Services {
		if !portNames(v, s, subsets, yield) {
			return false
		}
	}
	return true
}

// portNames yields the clusters of a service's ports, and those for TLS that a gateway
// passes on.
func portNames(v *mesh.View, s *mesh.ServiceRow, subsets []string, yield func(string) bool) bool {
	passes := v.PassesTLSTo(s.Hostname)
	for _, port := range s.Ports() {
		for _, subset := range subsets {
			number, of := uint32(port.Number), string(s.Hostname)
			if !yield(names.Cluster(names.Outbound, number, subset, of)) || passes && !yield(names.SNICluster(number, subset, of)) {
				return false
			}
		}
	}
	return true
}
