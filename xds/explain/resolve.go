package explain

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/host"
	"github.com/portolan-mesh/portolan/storage/refusal"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/storage/spelling"
	"github.com/portolan-mesh/portolan/xds/generate"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/mesh/origins"
	"github.com/portolan-mesh/portolan/xds/names/nds"
)

// ResolvePath is the path of a Resolution. Its parameters are host, the name that is asked, and from
// (a proxy, as of Path) or namespace (of a sidecar as it would be there), and server.
const ResolvePath = Path + "/dns"

// Resolution is what the name server beside a proxy answers for a name. Its JSON form is an API.
type Resolution struct {
	metav1.TypeMeta `json:",inline"`
	// Revision is the store's revision that it derives from.
	Revision int64  `json:"revision"`
	Proxy    Proxy  `json:"proxy"`
	Name     string `json:"name"`
	// Host is the host of the mesh that the name stands for, empty for none: then the resolvers of
	// the machine are asked.
	Host string `json:"host,omitempty"`
	// AliasOf is the host that Host is an alias of, empty for none: the addresses are those of its service.
	AliasOf string `json:"aliasOf,omitempty"`
	// Namespace and Registry say where the service is from. Objects are what it was made of.
	Namespace string   `json:"namespace,omitempty"`
	Registry  string   `json:"registry,omitempty"`
	Objects   []string `json:"objects,omitempty"`
	// Addresses are answered, and From says where they are from.
	Addresses []string      `json:"addresses,omitempty"`
	From      AddressSource `json:"from,omitempty"`
	// Reason is why no host of the mesh is answered.
	Reason string `json:"reason,omitempty"`
	// Warning says that nobody beside this proxy answers names of the mesh.
	Warning string `json:"warning,omitempty"`
}

// AddressSource is where the addresses of a host are from.
type AddressSource string

// The sources.
const (
	OwnAddresses      AddressSource = "own"
	AssignedAddresses AddressSource = "assigned"
	EndpointAddresses AddressSource = "endpoints"
)

// Resolve answers what the name server beside a proxy answers for a name. It builds what a server
// sends that of the host. With operations it answers as if they were applied. others may be nil.
func Resolve(server Nodes, types []generate.ResourceType, others Others) func(*http.Request, []storage.Op) (any, error) {
	return func(r *http.Request, ops []storage.Op) (any, error) {
		query := r.URL.Query()
		name, from, namespace := nds.KeyOf(query.Get("host")), query.Get("from"), query.Get("namespace")
		switch {
		case name == "" || strings.ContainsAny(name, "/: "):
			return nil, refusal.BadRequest(fmt.Sprintf("host %q: say which name: %s?host=NAME&from=PROXY", query.Get("host"), ResolvePath))
		case (from == "") == (namespace == ""):
			return nil, refusal.BadRequest("say who asks: from=PROXY, or namespace=NAMESPACE for a sidecar as it would be there")
		}
		push, err := contextOf(server, ops)
		if err != nil {
			return nil, err
		}
		proxy, connected := newProxy(discovery.Sidecar, noAddress, "any", namespace), false
		proxy.DNSCapture = true
		if from != "" {
			nodes := server.Nodes()
			if others != nil && !slices.ContainsFunc(nodes, func(n *discovery.Proxy) bool { return n.IsNamed(from) }) {
				if err := others.Find(query, from); err != nil {
					return nil, err
				}
			}
			if proxy, connected, err = proxyFrom(push, nodes, from); err == nil && proxy.Type != discovery.Sidecar {
				err = errors.New(from + " is no sidecar: names are answered by the agents of machines beside sidecars")
			}
			if err != nil {
				return nil, refusal.BadRequest(err.Error())
			}
		}
		out := &Resolution{
			TypeMeta: metav1.TypeMeta{APIVersion: "portolan.io/v1", Kind: "Resolution"}, Revision: push.Revision(), Name: name,
			Proxy: Proxy{Node: proxy.ID, Type: string(proxy.Type), Name: proxy.Name, Namespace: proxy.Namespace, Connected: connected},
		}
		if connected && !proxy.DNSCapture {
			out.Warning = "nobody beside it asks for the names of the mesh: this is the answer with dns: {} in the file of its agent (DNS_CAPTURE)"
		}
		proxy.DNSCapture = true // proxy is a copy
		domain, stated := strings.CutPrefix(proxy.DNSDomain, proxy.Namespace+".svc.")
		if !stated {
			domain = push.MeshConfig().Domain
		}
		return out, out.resolve(push, domain, generate.NewBuilder(push, proxy, generate.For(types, proxy.Type)))
	}
}

// resolve finds the host, as the table of an agent does. domain is the DNS suffix of short names.
func (out *Resolution) resolve(push *mesh.PushContext, domain string, builder *generate.Builder) error {
	full := nds.Complete(out.Name, out.Proxy.Namespace, domain)
	for _, one := range slices.AppendSeq([]string{out.Name, full}, nds.Wildcards(out.Name)) {
		built, err := builder.One(nds.HostType, nds.HostName(one))
		if err != nil {
			return err
		}
		if one == "" || built.Resource == nil {
			continue
		}
		body, err := built.Body.UnmarshalNew()
		if err != nil {
			return err
		}
		info := body.(*nds.Host).GetTable()[one]
		row := builder.View().Reached(host.Name(one))
		out.Host, out.Addresses, out.Registry, out.Namespace = one, info.GetIps(), info.GetRegistry(), row.Service().Attributes.Namespace
		if alias, ok := builder.View().Alias(host.Name(one)); ok {
			out.AliasOf = string(alias.Of)
		}
		out.Objects = namesOf(origins.Of(built.Reads), schema.ServiceEntry, schema.WorkloadEntry, schema.Sidecar)
		switch shape := builder.View().Shape(); {
		case len(shape.Addresses(row)) == 0:
			out.From = EndpointAddresses
		case len(shape.Assigned(row)) > 0:
			out.From = AssignedAddresses
		default:
			out.From = OwnAddresses
		}
		return nil
	}
	for _, one := range []string{out.Name, full} {
		if row := push.Host(host.Name(one)); row != nil {
			out.Reason = whyUnanswered(builder.View(), row)
			return nil
		}
	}
	out.Reason = "no service of the mesh has this host"
	var all []string
	for row := range push.HostRows() {
		all = append(all, string(row.Hostname))
	}
	if near := spelling.Nearest(out.Name, all); near != "" {
		out.Reason += ": did you mean " + near + "?"
	}
	return nil
}

// whyUnanswered says why a host of the mesh is not answered.
func whyUnanswered(v *mesh.View, row *mesh.HostRow) string {
	service := v.Reached(row.Hostname)
	if why := lostAlias(v, row.Hostname); why != "" {
		return why
	}
	if service == nil {
		var namespaces []string
		for _, s := range row.Services {
			namespaces = append(namespaces, s.Service().Attributes.Namespace)
		}
		return fmt.Sprintf("the proxy does not see %s of namespace %s: its exportTo, or a Sidecar, leaves it out", row.Hostname, strings.Join(namespaces, ", "))
	}
	switch resolution := service.Service().Resolution; {
	case len(service.Ranges()) > 0:
		return fmt.Sprintf("%s has a range of addresses, and no single one", row.Hostname)
	case resolution.IsDNS() || resolution == discovery.DynamicDNS:
		return fmt.Sprintf("%s has no address, and its resolution is by DNS: clients resolve it themselves", row.Hostname)
	}
	return fmt.Sprintf("%s has no address and no healthy endpoint", row.Hostname)
}
