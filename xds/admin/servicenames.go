package admin

import (
	"cmp"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portolan-mesh/portolan/xds/mesh"
)

// ServiceNames lists all services, by host and namespace. Its JSON form is an API.
type ServiceNames struct {
	metav1.TypeMeta `json:",inline"`
	// Revision is the store's revision that they are derived from.
	Revision int64         `json:"revision"`
	Items    []ServiceName `json:"items"`
}

// ServiceName is a summary of a host in one namespace.
type ServiceName struct {
	Hostname  string `json:"hostname"`
	Namespace string `json:"namespace"`
	// Registries are those that have the service, each once; the first one's definition counts.
	Registries []string `json:"registries"`
	// Clusters are the clusters that have the service.
	Clusters []string `json:"clusters,omitempty"`
	Ports    []Port   `json:"ports"`
	// AliasOf is as in Service.
	AliasOf string `json:"aliasOf,omitempty"`
	// Endpoints counts the endpoints of all registries, and Healthy the healthy ones. An
	// endpoint with several ports counts once.
	Endpoints int `json:"endpoints"`
	Healthy   int `json:"healthy"`
}

// namesOf lists the services of a namespace, or all if it is empty. Its cost follows the mesh.
func namesOf(p *mesh.PushContext, namespace string, registries Registries) ServiceNames {
	out := ServiceNames{
		TypeMeta: metav1.TypeMeta{APIVersion: "portolan.io/v1", Kind: "ServiceNames"},
		Revision: p.Revision(), Items: []ServiceName{},
	}
	for row := range p.HostRows() {
		for _, s := range row.Services {
			if namespace != "" && s.Namespace != namespace || len(s.Services) == 0 {
				continue
			}
			one := ServiceName{Hostname: string(s.Hostname), Namespace: s.Namespace, Ports: definition(s.Services[0]).Ports}
			for _, of := range s.Services {
				if name := string(of.Attributes.Provider); !slices.Contains(one.Registries, name) {
					one.Registries = append(one.Registries, name)
				}
			}
			if registries.Clusters != nil {
				one.Clusters = slices.DeleteFunc(registries.Clusters(s.Services), func(name string) bool { return name == "" })
			}
			of, alias := p.AliasOf(s, s.Namespace)
			if alias {
				one.AliasOf = cmp.Or(string(of), one.Hostname)
				out.Items = append(out.Items, one)
				continue
			}
			for _, e := range grouped(p, s) {
				one.Endpoints++
				if e.Health == Healthy {
					one.Healthy++
				}
			}
			out.Items = append(out.Items, one)
		}
	}
	return out
}

// ask fills in what registries tell of the services of a host.
func (l *ServiceList) ask(row *mesh.HostRow, of Registries) {
	for i := range l.Items {
		for _, s := range row.Services {
			if s.Namespace != l.Items[i].Namespace {
				continue
			}
			definitions := l.Items[i].Definitions
			for j, service := range s.Services {
				if of.Places != nil {
					definitions[j].Places = of.Places(service)
				}
			}
			if of.Clusters != nil {
				for j, name := range of.Clusters(s.Services) {
					if name != "" {
						definitions[j].Places = append(definitions[j].Places, fmt.Sprintf("cluster %s: Service %s/%s", name, s.Namespace, definitions[j].Name))
					}
				}
			}
			if of.Findings != nil {
				l.Items[i].Findings = of.Findings(s)
			}
		}
	}
}
