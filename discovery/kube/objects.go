package kube

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unique"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/discovery/lastknown"
	"github.com/portolan-mesh/portolan/storage/labels"
)

// exportToAnnotation is the annotation of a Service that says who sees it, as Istio names it.
const exportToAnnotation = "networking.istio.io/exportTo"

// object is what the registry keeps of an object of the cluster. It is a pointer to a value that
// is never modified. Its JSON form is saved as what was last known.
type object interface {
	lastknown.Item
	// path is the key of the object among all kinds, such as "pod/shop/web-1".
	path() string
	equal(object) bool
}

// The first parts of paths.
const (
	servicePrefix = "service/"
	slicePrefix   = "slice/"
	podPrefix     = "pod/"
	nodePrefix    = "node/"
)

// service is a Service.
type service struct {
	Namespace string          `json:"namespace"`
	Name      string          `json:"name"`
	Created   int64           `json:"created"` // Unix seconds
	Labels    labels.Instance `json:"labels,omitempty"`
	// ExportTo has the values of the annotation, nil for the mesh's default.
	ExportTo []string `json:"exportTo,omitempty"`
	// Selector is nil for a Service whose EndpointSlices others write.
	Selector labels.Instance `json:"selector,omitempty"`
	// Headless says that clients use the addresses of the pods, and ExternalName that they use
	// another name.
	Headless     bool     `json:"headless,omitempty"`
	ExternalName string   `json:"externalName,omitempty"`
	ClusterIPs   []string `json:"clusterIPs,omitempty"`
	// External are addresses and host names that lead to the Service from outside the cluster.
	External []string `json:"external,omitempty"`
	// Family is the first family of its addresses, IPv4 or IPv6.
	Family          string `json:"family,omitempty"`
	PublishNotReady bool   `json:"publishNotReady,omitempty"`
	// NodeLocal says that clients use the pods on their own node alone.
	NodeLocal    bool                `json:"nodeLocal,omitempty"`
	Distribution labels.Distribution `json:"distribution,omitempty"`
	Ports        []port              `json:"ports,omitempty"`
	// Flaws say what of it is not served.
	Flaws []string `json:"flaws,omitempty"`
}

// port is a port of a Service. TargetName is set if its target is a port by name.
type port struct {
	Name       string             `json:"name,omitempty"`
	Number     int                `json:"number"`
	Protocol   discovery.Protocol `json:"protocol,omitempty"`
	Target     int                `json:"target,omitempty"`
	TargetName string             `json:"targetName,omitempty"`
}

// slice is an EndpointSlice.
type slice struct {
	Namespace string     `json:"namespace"`
	Name      string     `json:"name"`
	Service   string     `json:"service"`
	Family    string     `json:"family"`
	Ports     []port     `json:"ports,omitempty"`
	Endpoints []endpoint `json:"endpoints,omitempty"`
	Flaws     []string   `json:"flaws,omitempty"`
}

// endpoint is an address of a slice. Pod is empty if it names no pod of the namespace.
type endpoint struct {
	Address string           `json:"address"`
	Pod     string           `json:"pod,omitempty"`
	Node    string           `json:"node,omitempty"`
	Zone    string           `json:"zone,omitempty"`
	Health  discovery.Health `json:"health,omitempty"`
}

// pod is a Pod that has an address.
type pod struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Address   string `json:"address"`
	// Others are its addresses beside Address, as those of another family.
	Others []string `json:"others,omitempty"`
	// HostNetwork says that the pod has the addresses of its node. Other pods there have them too.
	HostNetwork bool            `json:"hostNetwork,omitempty"`
	Node        string          `json:"node,omitempty"`
	Account     string          `json:"account,omitempty"`
	Labels      labels.Instance `json:"labels,omitempty"`
	// Ready says that ServiceEntries may select it.
	Ready bool `json:"ready,omitempty"`
}

// node is a Node.
type node struct {
	Name     string `json:"name"`
	Locality string `json:"locality,omitempty"`
}

func serviceKey(namespace, name string) string { return namespace + "/" + name }

func (s *service) key() string  { return serviceKey(s.Namespace, s.Name) }
func (s *service) path() string { return servicePrefix + s.key() }
func (s *slice) path() string {
	return slicePrefix + serviceKey(s.Namespace, s.Service) + "/" + s.Name
}
func (p *pod) path() string  { return podPrefix + serviceKey(p.Namespace, p.Name) }
func (n *node) path() string { return nodePrefix + n.Name }

// Value implements lastknown.Item.
func (s *service) Value() ([]byte, error) { return json.Marshal(s) }

// Value implements lastknown.Item.
func (s *slice) Value() ([]byte, error) { return json.Marshal(s) }

// Value implements lastknown.Item.
func (p *pod) Value() ([]byte, error) { return json.Marshal(p) }

// Value implements lastknown.Item.
func (n *node) Value() ([]byte, error) { return json.Marshal(n) }

func (s *service) equal(other object) bool {
	o, ok := other.(*service)
	return ok && s.Namespace == o.Namespace && s.Name == o.Name && s.Created == o.Created && s.Labels.Equal(o.Labels) &&
		slices.Equal(s.ExportTo, o.ExportTo) && (s.Selector == nil) == (o.Selector == nil) && s.Selector.Equal(o.Selector) &&
		s.Headless == o.Headless && s.ExternalName == o.ExternalName && slices.Equal(s.ClusterIPs, o.ClusterIPs) &&
		slices.Equal(s.External, o.External) && s.Family == o.Family && s.PublishNotReady == o.PublishNotReady &&
		s.NodeLocal == o.NodeLocal && s.Distribution == o.Distribution &&
		slices.Equal(s.Ports, o.Ports) && slices.Equal(s.Flaws, o.Flaws)
}

func (s *slice) equal(other object) bool {
	o, ok := other.(*slice)
	return ok && s.path() == o.path() && s.Family == o.Family && slices.Equal(s.Ports, o.Ports) && slices.Equal(s.Endpoints, o.Endpoints) &&
		slices.Equal(s.Flaws, o.Flaws)
}

func (p *pod) equal(other object) bool {
	o, ok := other.(*pod)
	return ok && p.Namespace == o.Namespace && p.Name == o.Name && p.Address == o.Address && slices.Equal(p.Others, o.Others) && p.HostNetwork == o.HostNetwork && p.Node == o.Node &&
		p.Account == o.Account && p.Ready == o.Ready && p.Labels.Equal(o.Labels)
}

func (n *node) equal(other object) bool {
	o, ok := other.(*node)
	return ok && *n == *o
}

// addresses yields the addresses of a pod that are its own. A pod in the network of its node has none.
func (p *pod) addresses(yield func(string) bool) {
	if p == nil || p.HostNetwork || !yield(p.Address) {
		return
	}
	for _, address := range p.Others {
		if !yield(address) {
			return
		}
	}
}

// decode reads an object that Value has written.
func decode(path string, value []byte) (object, error) {
	var into object
	switch kind, _, _ := strings.Cut(path, "/"); kind + "/" {
	case servicePrefix:
		into = &service{}
	case slicePrefix:
		into = &slice{}
	case podPrefix:
		into = &pod{}
	case nodePrefix:
		into = &node{}
	default:
		return nil, fmt.Errorf("%s is of no kind that is known", path)
	}
	if err := json.Unmarshal(value, into); err != nil {
		return nil, err
	}
	if into.path() != path {
		return nil, fmt.Errorf("it is %s", into.path())
	}
	return into, nil
}

func stripService(s *corev1.Service) *service {
	out := &service{
		Namespace: s.Namespace, Name: s.Name, Created: s.CreationTimestamp.Unix(), Labels: s.Labels,
		PublishNotReady: s.Spec.PublishNotReadyAddresses, Family: string(corev1.IPv4Protocol),
	}
	if text := s.Annotations[exportToAnnotation]; text != "" {
		for part := range strings.SplitSeq(text, ",") {
			if part = strings.TrimSpace(part); part != "" {
				out.ExportTo = append(out.ExportTo, part)
			}
		}
	}
	if len(s.Spec.IPFamilies) > 0 {
		out.Family = string(s.Spec.IPFamilies[0])
	}
	switch {
	case s.Spec.Type == corev1.ServiceTypeExternalName:
		out.ExternalName = strings.ToLower(strings.TrimSuffix(s.Spec.ExternalName, "."))
	case s.Spec.ClusterIP == corev1.ClusterIPNone:
		out.Headless = true
	case s.Spec.ClusterIP != "":
		if out.ClusterIPs = s.Spec.ClusterIPs; len(out.ClusterIPs) == 0 {
			out.ClusterIPs = []string{s.Spec.ClusterIP}
		}
	}
	if len(s.Spec.Selector) > 0 && out.ExternalName == "" {
		out.Selector = s.Spec.Selector
	}
	out.External = slices.Clone(s.Spec.ExternalIPs)
	if out.ExternalName != "" {
		out.External = append(out.External, out.ExternalName)
	}
	for _, i := range s.Status.LoadBalancer.Ingress {
		if at := cmp.Or(i.IP, i.Hostname); at != "" {
			out.External = append(out.External, at)
		}
	}
	for i := range s.Spec.Ports {
		out.addPort(&s.Spec.Ports[i])
	}
	if len(s.Spec.Ports) == 0 && out.ExternalName == "" {
		out.flaw("it has no port: no proxy serves it")
	}
	if policy := s.Spec.InternalTrafficPolicy; policy != nil && *policy == corev1.ServiceInternalTrafficPolicyLocal {
		out.NodeLocal = true
		out.flaw("internalTrafficPolicy Local: proxies on machines are on no node of the cluster, and get none of its pods")
	}
	if s.Spec.SessionAffinity == corev1.ServiceAffinityClientIP {
		out.flaw("sessionAffinity ClientIP has no effect: set consistentHash.useSourceIp in a DestinationRule")
	}
	out.distribute(s)
	return out
}

func (s *service) flaw(text string) { s.Flaws = append(s.Flaws, text) }

// distribute reads spec.trafficDistribution, else the annotation. (Istio: GetTrafficDistribution.)
func (s *service) distribute(from *corev1.Service) {
	var err error
	if of := from.Spec.TrafficDistribution; of != nil {
		if s.Distribution, err = labels.ParseDistribution(*of); err != nil {
			s.flaw("trafficDistribution " + err.Error())
		}
	}
	if s.Distribution == labels.AnyEndpoint {
		if s.Distribution, err = labels.ParseDistribution(from.Annotations[labels.DistributionAnnotation]); err != nil {
			s.flaw("annotation " + labels.DistributionAnnotation + ": " + err.Error())
		}
	}
}

func (s *service) addPort(p *corev1.ServicePort) {
	if p.Protocol == corev1.ProtocolSCTP {
		s.flaw(fmt.Sprintf("port %d is of SCTP, which no proxy serves: left out", p.Port))
		return
	}
	if p.Protocol == corev1.ProtocolUDP {
		s.flaw(fmt.Sprintf("port %d is of UDP, which no proxy serves: clients call it past their proxy", p.Port))
	}
	one := port{Name: p.Name, Number: int(p.Port), Protocol: protocolOf(p), Target: int(p.TargetPort.IntVal)}
	if p.TargetPort.Type == intstr.String {
		one.Target, one.TargetName = 0, p.TargetPort.StrVal
	}
	s.Ports = append(s.Ports, one)
}

// stripSlice returns nil for a slice of no Service.
func stripSlice(s *discoveryv1.EndpointSlice) *slice {
	of := s.Labels[discoveryv1.LabelServiceName]
	if of == "" {
		return nil
	}
	out := &slice{Namespace: s.Namespace, Name: s.Name, Service: of, Family: string(s.AddressType)}
	if s.AddressType == discoveryv1.AddressTypeFQDN {
		out.Flaws = []string{"it has host names, which no proxy resolves for a Service: use the type ExternalName, or a ServiceEntry"}
		return out
	}
	for _, p := range s.Ports {
		if p.Port == nil {
			out.Flaws = append(out.Flaws, "a port has no number: left out")
		}
		if p.Port == nil || p.Protocol != nil && *p.Protocol == corev1.ProtocolSCTP { // the Service says so of SCTP
			continue
		}
		one := port{Number: int(*p.Port)}
		if p.Name != nil {
			one.Name = *p.Name
		}
		out.Ports = append(out.Ports, one)
	}
	for i := range s.Endpoints {
		from := &s.Endpoints[i]
		if len(from.Addresses) == 0 {
			continue
		}
		one := endpoint{Address: from.Addresses[0], Health: healthOf(from.Conditions)} // consumers use the first alone (discovery/v1)
		if ref := from.TargetRef; ref != nil && ref.Kind == "Pod" && (ref.Namespace == "" || ref.Namespace == s.Namespace) {
			one.Pod = ref.Name
		}
		if from.NodeName != nil {
			one.Node = shared(*from.NodeName)
		}
		if from.Zone != nil {
			one.Zone = shared(*from.Zone)
		}
		out.Endpoints = append(out.Endpoints, one)
	}
	return out
}

// healthOf reads the conditions of an endpoint. One that is not known counts as true, and
// terminating as false (discovery/v1). A terminating endpoint that serves no more is out of use.
func healthOf(c discoveryv1.EndpointConditions) discovery.Health {
	is := func(condition *bool, unknown bool) bool {
		if condition == nil {
			return unknown
		}
		return *condition
	}
	switch {
	case is(c.Ready, true):
		return discovery.Healthy
	case is(c.Terminating, false) && is(c.Serving, is(c.Ready, true)):
		return discovery.Draining
	case is(c.Terminating, false):
		return discovery.OutOfUse
	}
	return discovery.Unhealthy
}

// stripPod returns nil for a pod that has no address, or has ended.
func stripPod(p *corev1.Pod) *pod {
	if p.Status.PodIP == "" || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
		return nil
	}
	out := &pod{
		Namespace: shared(p.Namespace), Name: p.Name, Address: p.Status.PodIP, Node: shared(p.Spec.NodeName), Account: shared(p.Spec.ServiceAccountName),
		Labels: sharedLabels(p.Labels), HostNetwork: p.Spec.HostNetwork,
	}
	for _, of := range p.Status.PodIPs {
		if of.IP != out.Address {
			out.Others = append(out.Others, of.IP)
		}
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			out.Ready = c.Status == corev1.ConditionTrue && p.DeletionTimestamp == nil
		}
	}
	return out
}

func stripNode(n *corev1.Node) *node {
	return &node{Name: n.Name, Locality: discovery.LocalityOfLabels(n.Labels)}
}

// shared returns the one copy of a text that many objects have.
func shared(text string) string { return unique.Make(text).Value() }

func sharedLabels(of map[string]string) labels.Instance {
	if of == nil {
		return nil
	}
	out := make(labels.Instance, len(of))
	for key, value := range of {
		out[shared(key)] = shared(value)
	}
	return out
}
