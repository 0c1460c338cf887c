package consul

import (
	"net/url"

	"github.com/hashicorp/consul/api"
)

func (d *datacenter) services() question[map[string][]string] {
	return question[map[string][]string]{
		kind: "services", spacing: listSpacing, steady: true, known: d.lastIndex(),
		entries: func(a map[string][]string) int { return len(a) }, ask: d.r.client.Catalog().Services,
	}
}

// listIndex queries only the index of the list of services: no service has an empty name.
func (d *datacenter) listIndex() question[map[string][]string] {
	q := d.services()
	q.kind = "list index"
	q.ask = func(o *api.QueryOptions) (map[string][]string, *api.QueryMeta, error) {
		o.Filter = `ServiceName == ""`
		return d.r.client.Catalog().Services(o)
	}
	return q
}

func (d *datacenter) nodes() question[[]*api.Node] {
	return question[[]*api.Node]{
		kind: "nodes", spacing: listSpacing, steady: true,
		entries: func(a []*api.Node) int { return len(a) }, ask: d.r.client.Catalog().Nodes,
	}
}

// service queries the instances of a service, sorted by distance from the agent. The sorting
// makes Consul answer from its store instead of its event stream. Answers of the stream say
// neither whether there is a leader nor whether something is hidden.
// https://github.com/hashicorp/consul/issues/9776
func (d *datacenter) service(name string) question[[]*api.ServiceEntry] {
	return question[[]*api.ServiceEntry]{
		kind: "service", name: name, spacing: spacing, steady: true,
		entries: func(a []*api.ServiceEntry) int { return len(a) },
		ask: func(o *api.QueryOptions) ([]*api.ServiceEntry, *api.QueryMeta, error) {
			o.Near = "_agent"
			return d.r.client.Health().Service(name, "", false, o)
		},
	}
}

// onNode is an instance on a node, with only what shows whether it has changed.
type onNode struct {
	ID, Service string
	Kind        api.ServiceKind
	ModifyIndex uint64
}

// node queries the instances on a node. It is not steady, because Consul answers index 1 for a
// node that is gone.
func (d *datacenter) node(name string) question[[]onNode] {
	return question[[]onNode]{
		kind: "node", name: name, spacing: spacing, entries: func(a []onNode) int { return len(a) },
		ask: func(o *api.QueryOptions) (out []onNode, meta *api.QueryMeta, err error) {
			var answer struct{ Services []onNode }
			meta, err = d.r.client.Raw().Query("/v1/catalog/node-services/"+url.PathEscape(name), &answer, o)
			for _, i := range answer.Services {
				if inMesh(i.Kind, i.Service) && flawOfName(i.Service) == "" {
					out = append(out, i)
				}
			}
			return out, meta, err
		},
	}
}

// check is a check, with only what shows whose it is and whether it has changed.
type check struct {
	Node, CheckID, ServiceID, ServiceName string
	ModifyIndex                           uint64
}

// checks queries the checks in a state. Consul answers when one of them changes. If there are
// none in the state, it answers at each change of any check.
func (d *datacenter) checks(status string) question[[]check] {
	return question[[]check]{
		kind: "checks", name: status, spacing: checksSpacing, steady: true, entries: func(a []check) int { return len(a) },
		ask: func(o *api.QueryOptions) (out []check, meta *api.QueryMeta, err error) {
			meta, err = d.r.client.Raw().Query("/v1/health/state/"+status, &out, o)
			return out, meta, err
		},
	}
}

// probe queries Consul's own servers. Any answer, even an empty one, shows that Consul has a
// leader and accepts the token.
func (d *datacenter) probe() question[[]*api.CatalogService] {
	return question[[]*api.CatalogService]{
		kind: "probe", limit: probeTime,
		ask: func(o *api.QueryOptions) ([]*api.CatalogService, *api.QueryMeta, error) {
			return d.r.client.Catalog().Service(serversName, "", o)
		},
	}
}
