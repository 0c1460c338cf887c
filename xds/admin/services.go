package admin

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/discovery/serviceentry"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/health"
	"github.com/portolan-mesh/portolan/storage/host"
	"github.com/portolan-mesh/portolan/storage/labels"
	"github.com/portolan-mesh/portolan/storage/refusal"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/mesh/destination"
	"github.com/portolan-mesh/portolan/xds/verdict/finding"
)

// ServicesPath is the path of a ServiceList: the services of one host (the parameter host), in
// one namespace or in all. Without a host, the answer is a ServiceNames.
const ServicesPath = "/apis/portolan.io/v1/services"

// ServiceList describes services as proxies get them, the oldest first. Its JSON form
// is an API.
type ServiceList struct {
	metav1.TypeMeta `json:",inline"`
	// Revision is the store's revision that they are derived from.
	Revision int64     `json:"revision"`
	Items    []Service `json:"items"`
	// Similar lists hosts with a similar name if the requested host does not exist.
	Similar []string `json:"similar,omitempty"`
}

// Service has all that the registries know of a host in one namespace.
type Service struct {
	Hostname  string `json:"hostname"`
	Namespace string `json:"namespace"`
	// AliasOf is the host that the service stands for to clients of its namespace, itself if that leads back
	// to it; empty for a service of its own. An alias has no endpoints.
	AliasOf string `json:"aliasOf,omitempty"`
	// Aliases are the hosts that stand for this one to clients of their own namespaces.
	Aliases []string `json:"aliases,omitempty"`
	// Definitions are the services of that name, one for each address; the first one counts for
	// the host.
	Definitions []Definition `json:"definitions"`
	// Endpoints are in the order of registries.
	Endpoints []Endpoint `json:"endpoints"`
	// Subsets are the subsets of all DestinationRules that apply to the host for some
	// proxy.
	Subsets []Subset `json:"subsets"`
	// Findings are about the endpoints that no object defines.
	Findings []finding.Finding `json:"findings,omitempty"`
}

// Definition is a service under one address.
type Definition struct {
	Registry     string   `json:"registry"`
	Name         string   `json:"name,omitempty"`
	Resolution   string   `json:"resolution"`
	Address      string   `json:"address,omitempty"`
	Ports        []Port   `json:"ports"`
	ExportTo     []string `json:"exportTo"`
	MeshExternal bool     `json:"meshExternal,omitempty"`
	// ExternalName is the host that a Service of the type ExternalName names; empty for others.
	ExternalName string `json:"externalName,omitempty"`
	// Places are where the service is defined, if not by an object of the mesh.
	Places []string `json:"places,omitempty"`
}

// Port is a port of a service, or of an endpoint that serves it.
type Port struct {
	Name     string `json:"name"`
	Number   int    `json:"number"`
	Protocol string `json:"protocol,omitempty"`
	// MTLS is the mode in which an endpoint of the mesh takes connections on the port; empty for
	// services outside the mesh.
	MTLS string `json:"mtls,omitempty"`
	// Labelled: the endpoint is said to take mutual TLS of the mesh, by its label or its account.
	Labelled bool `json:"labelled,omitempty"`
	// MTLSFrom is "namespace/name" of the PeerAuthentication that says so; empty for the default.
	MTLSFrom string `json:"mtlsFrom,omitempty"`
}

// The states of an endpoint.
const (
	Healthy   = "HEALTHY"
	Unhealthy = "UNHEALTHY"
	Draining  = "DRAINING"
	// LeftOut is a workload that a service selects, but that is no endpoint because it is
	// withdrawn, or its health checks did not succeed.
	LeftOut = "LEFT OUT"
)

// Endpoint is an address of a service, with its port for each port of the service.
type Endpoint struct {
	Registry string `json:"registry"`
	Cluster  string `json:"cluster,omitempty"`
	Address  string `json:"address"`
	Ports    []Port `json:"ports"`
	Locality string `json:"locality,omitempty"`
	Network  string `json:"network,omitempty"`
	Health   string `json:"health"`
	// Reason is why a workload is left out.
	Reason string `json:"reason,omitempty"`
	Weight uint32 `json:"weight,omitempty"`
	// Workload is "namespace/name" of the object that defines it.
	Workload       string            `json:"workload,omitempty"`
	ServiceAccount string            `json:"serviceAccount,omitempty"`
	Labels         map[string]string `json:"labels,omitempty"`
	// Subsets are the subsets of the endpoint.
	Subsets []SubsetRef `json:"subsets,omitempty"`
}

// SubsetRef names a subset of a DestinationRule, "namespace/name".
type SubsetRef struct {
	Name string `json:"name"`
	Rule string `json:"rule"`
}

// Subset is a subset, and the number of endpoints that it selects.
type Subset struct {
	SubsetRef `json:",inline"`
	// Host is the name or pattern in the rule.
	Host      string            `json:"host"`
	Labels    map[string]string `json:"labels,omitempty"`
	Endpoints int               `json:"endpoints"`
	Healthy   int               `json:"healthy"`
}

// Source has the context of the newest push, nil before the first. An *xds.DiscoveryServer
// implements it.
type Source interface{ Context() *mesh.PushContext }

// Registries tell of services that no object defines. The functions may be nil.
type Registries struct {
	// Clusters returns the cluster of each service of a row, "" for one that is of none.
	Clusters func(row []*discovery.Service) []string
	// Places returns where a service is defined, if not by an object.
	Places func(*discovery.Service) []string
	// Findings returns what is odd about the endpoints of a service that no object defines.
	Findings func(*mesh.ServiceRow) []finding.Finding
}

// Services serves what a server knows of a host's services: the rows of its newest push.
func Services(server Source, of Registries) func(*http.Request) (any, error) {
	return func(r *http.Request) (any, error) {
		name, namespace := strings.ToLower(r.URL.Query().Get("host")), r.URL.Query().Get("namespace")
		push := server.Context()
		if push == nil {
			return nil, refusal.Unavailable("the server has not read its configuration yet: try again in a moment")
		}
		if name == "" {
			return namesOf(push, namespace, of), nil
		}
		list := describe(push, host.Name(name), namespace)
		if row := push.Host(host.Name(name)); row != nil {
			list.ask(row, of)
		}
		return list, nil
	}
}

func describe(p *mesh.PushContext, name host.Name, namespace string) ServiceList {
	list := ServiceList{
		TypeMeta: metav1.TypeMeta{APIVersion: "portolan.io/v1", Kind: "ServiceList"},
		Revision: p.Revision(), Items: []Service{},
	}
	row := p.Host(name)
	if row == nil {
		list.Similar = similar(p, string(name))
		return list
	}
	rules := p.RulesOf(name)
	for _, s := range row.Services {
		if namespace == "" || s.Namespace == namespace {
			out := service(s, p, rules)
			out.Endpoints = append(out.Endpoints, leftOut(p, s, out.Endpoints)...)
			list.Items = append(list.Items, out)
		}
	}
	return list
}

// maxSimilar limits the similar names in the answer for an unknown host.
const maxSimilar = 3

// similar returns some hosts whose first label contains that of a name, or is a prefix of it.
func similar(p *mesh.PushContext, name string) (out []string) {
	first, _, _ := strings.Cut(name, ".")
	for row := range p.HostRows() {
		label, _, _ := strings.Cut(string(row.Hostname), ".")
		if strings.Contains(label, first) || strings.HasPrefix(first, label) && label != "" {
			if out = append(out, string(row.Hostname)); len(out) == maxSimilar {
				break
			}
		}
	}
	return out
}

// leftOut returns the WorkloadEntries that a service selects, but that are no endpoints because
// they are withdrawn, or nobody reported them healthy.
func leftOut(p *mesh.PushContext, row *mesh.ServiceRow, endpoints []Endpoint) (out []Endpoint) {
	configs := p.Inputs().Configs
	for object := range configs.List(schema.WorkloadEntry, row.Namespace) {
		name := object.Namespace + "/" + object.Name
		why, withdrawn := health.Withdrawn(object.Annotations)
		if !withdrawn && !health.Checked(object.Annotations) || !selects(row, object) ||
			slices.ContainsFunc(endpoints, func(e Endpoint) bool { return e.Workload == name }) {
			continue
		}
		spec := object.Spec.(*networking.WorkloadEntry)
		reason := "no report"
		if withdrawn {
			reason = why
		} else if r := configs.Health().Value(health.Path(object.Namespace, object.Name)); r.Of(object.UID) && !r.Unknown {
			if r.Healthy {
				continue // it is no endpoint for another reason
			}
			reason = r.Message
		}
		out = append(out, Endpoint{
			Registry: string(discovery.External), Address: spec.GetAddress(), Ports: []Port{}, Locality: spec.GetLocality(),
			Network: spec.GetNetwork(), Health: LeftOut, Reason: reason, Workload: name, Labels: serviceentry.LabelsOf(&object.Meta, object.Spec.(*networking.WorkloadEntry)),
		})
	}
	return out
}

// selects reports whether a service selects a WorkloadEntry of its namespace.
func selects(row *mesh.ServiceRow, object *config.Config) bool {
	return slices.ContainsFunc(row.Services, func(s *discovery.Service) bool {
		return s.Attributes.Provider == discovery.External && s.Attributes.LabelSelectors != nil &&
			s.Attributes.LabelSelectors.SubsetOf(serviceentry.LabelsOf(&object.Meta, object.Spec.(*networking.WorkloadEntry)))
	})
}

func service(row *mesh.ServiceRow, push *mesh.PushContext, rules []*destination.Rule) Service {
	out := Service{
		Hostname: string(row.Hostname), Namespace: row.Namespace,
		Definitions: []Definition{}, Endpoints: []Endpoint{}, Subsets: subsets(rules),
	}
	for _, s := range row.Services {
		out.Definitions = append(out.Definitions, definition(s))
	}
	if of, alias := push.AliasOf(row, row.Namespace); alias {
		out.AliasOf, out.Subsets = cmp.Or(string(of), out.Hostname), []Subset{}
		return out
	}
	for _, alias := range push.AliasesOf(row.Hostname) {
		out.Aliases = append(out.Aliases, string(alias))
	}
	out.Endpoints = grouped(push, row)
	for i := range out.Endpoints {
		e := &out.Endpoints[i]
		for j := range out.Subsets {
			s := &out.Subsets[j]
			if !labels.Instance(s.Labels).SubsetOf(e.Labels) {
				continue
			}
			e.Subsets = append(e.Subsets, s.SubsetRef)
			s.Endpoints++
			if e.Health == Healthy {
				s.Healthy++
			}
		}
	}
	return out
}

func definition(s *discovery.Service) Definition {
	out := Definition{
		Registry: string(s.Attributes.Provider), Name: s.Attributes.Name, Resolution: s.Resolution.String(),
		Ports: []Port{}, ExportTo: []string{"*"}, MeshExternal: s.MeshExternal,
		ExternalName: string(s.Attributes.ExternalName),
	}
	if !s.Attributes.ExportTo.Public() {
		out.ExportTo = s.Attributes.ExportTo
	}
	if s.Address != discovery.UnspecifiedIP {
		out.Address = s.Address
	}
	for _, p := range s.Ports {
		out.Ports = append(out.Ports, Port{Name: p.Name, Number: p.Number, Protocol: string(p.Protocol)})
	}
	return out
}

// grouped merges the endpoints of a service that differ only in their ports.
func grouped(push *mesh.PushContext, row *mesh.ServiceRow) []Endpoint {
	out := []Endpoint{}
	var last *discovery.Endpoint
	var of discovery.ShardKey
	for shard, e := range push.EndpointsOf(row).ByShard() {
		port := Port{Name: e.ServicePortName, Number: e.Port, Labelled: e.TLSMode == discovery.TLSModeIstio}
		if !row.Service().MeshExternal {
			decision := push.PeersOf(e.Namespace).Decide(e.Labels, e.Port)
			if port.MTLS = decision.Mode.String(); decision.By != nil {
				port.MTLSFrom = decision.By.Config.Namespace + "/" + decision.By.Config.Name
			}
		}
		if last != nil && shard == of && samePlace(last, e) {
			same := &out[len(out)-1]
			same.Ports = append(same.Ports, port)
			continue
		}
		last, of = e, shard
		out = append(out, endpoint(shard, e, port))
	}
	return out
}

// samePlace reports whether two endpoints differ at most in their ports.
func samePlace(a, b *discovery.Endpoint) bool {
	other := *b
	other.Port, other.ServicePortName, other.ServicePort = a.Port, a.ServicePortName, a.ServicePort
	return a.Equal(&other)
}

func endpoint(shard discovery.ShardKey, e *discovery.Endpoint, port Port) Endpoint {
	out := Endpoint{
		Registry: string(shard.Provider), Cluster: shard.Cluster, Address: e.Address, Ports: []Port{port},
		Locality: e.Locality.Label, Network: e.Network, Health: healthOf(e.Health), Weight: e.Weight,
		ServiceAccount: e.ServiceAccount, Labels: e.Labels,
	}
	if e.WorkloadName != "" {
		out.Workload = e.Namespace + "/" + e.WorkloadName
	}
	return out
}

func healthOf(h discovery.Health) string {
	switch h {
	case discovery.Healthy:
		return Healthy
	case discovery.Draining:
		return Draining
	}
	return Unhealthy
}

// subsets returns the subsets of some rules, each with the object that defines it.
func subsets(rules []*destination.Rule) []Subset {
	out := []Subset{}
	for _, r := range rules {
		for _, s := range r.Subsets {
			out = append(out, Subset{
				SubsetRef: SubsetRef{Name: s.GetName(), Rule: ruleOf(r, s)},
				Host:      string(r.Host), Labels: s.GetLabels(),
			})
		}
	}
	return out
}

// ruleOf returns the DestinationRule that a subset of a merged rule comes from.
func ruleOf(r *destination.Rule, s *networking.Subset) string {
	i := slices.IndexFunc(r.Configs, func(c *config.Config) bool {
		return slices.Contains(c.Spec.(*networking.DestinationRule).GetSubsets(), s)
	})
	return fmt.Sprintf("%s/%s", r.Configs[i].Namespace, r.Configs[i].Name)
}
