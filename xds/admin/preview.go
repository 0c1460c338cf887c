package admin

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/xds"
	"github.com/portolan-mesh/portolan/xds/admin/effect"
	"github.com/portolan-mesh/portolan/xds/desired"
	"github.com/portolan-mesh/portolan/xds/explain"
	"github.com/portolan-mesh/portolan/xds/generate"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/mesh/peer"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// Preview says what operations on the configuration would change for the connected proxies. Of a
// change in phases it is what the last phase changes. types are the served types. It returns false
// if server.WouldBe does. Its cost follows the differences, and the number of proxies.
func Preview(server *xds.DiscoveryServer, types []generate.ResourceType, ops []storage.Op, what effect.Preview) (effect.Effect, bool) {
	is, would, known := server.WouldBe(ops)
	if !known {
		return effect.Effect{}, false
	}
	var phases []string
	if slices.ContainsFunc(ops, func(op storage.Op) bool { return op.Target().Kind == schema.PeerAuthentication }) {
		var last []storage.Op
		if last, phases = lastPhases(is.Context, would.Context); len(last) > 0 {
			if is, would, known = server.WouldBe(slices.Concat(ops, last)); !known {
				return effect.Effect{}, false
			}
		}
	}
	e := differences{what: what, order: map[string]int{}, proxies: map[string]bool{}, resources: map[twoVersions]*changedResource{}}
	for i, t := range types {
		e.order[t.Name] = i
	}
	for _, stream := range server.Foresee(is, would) {
		e.add(stream.Node, stream.Differences)
	}
	out := e.result()
	out.Phases = phases
	foreseeCalls(&out, is, would, types, server.Nodes(), ops)
	return out, true
}

// lastPhases returns the operations after which all follow the PeerAuthentications of a context that
// would be, and the namespaces that change in phases until then.
func lastPhases(is, would *mesh.PushContext) (last []storage.Op, namespaces []string) {
	onTheWay := map[string]string{} // by namespace: what it goes to anyway
	for namespace, policies := range is.PeerChanges() {
		onTheWay[namespace] = policies.Digest()
	}
	for namespace, policies := range would.PeerChanges() {
		if policies.Phase() == peer.Settled || onTheWay[namespace] == policies.Digest() {
			continue
		}
		namespaces = append(namespaces, namespace)
		of := config.Meta{GroupVersionKind: schema.PeerPhase, Namespace: namespace, Name: schema.PeerPhaseName}
		last = append(last, storage.Op{Verb: storage.Put, Config: &config.Config{Meta: of, Spec: policies.Last()}})
	}
	return last, namespaces
}

// foreseeCalls adds whom the AuthorizationPolicies of operations select, and which calls they would
// newly refuse.
func foreseeCalls(out *effect.Effect, is, would xds.Moment, types []generate.ResourceType, nodes []*discovery.Proxy, ops []storage.Op) {
	var policies []config.Key
	for _, op := range ops {
		if key := op.Target(); key.Kind == schema.AuthorizationPolicy {
			policies = append(policies, key)
		}
	}
	if len(policies) == 0 {
		return
	}
	slices.SortFunc(policies, func(a, b config.Key) int { return strings.Compare(a.Path(), b.Path()) })
	found := explain.Foresee(is.Context, would.Context, types, nodes, policies)
	for _, key := range policies {
		nodes := found.Selected[key]
		out.Policies = append(out.Policies, effect.Policy{Policy: key.String(), Workloads: len(nodes), Nodes: nodes[:min(len(nodes), effect.MaxNodes)]})
	}
	out.Calls = &effect.Calls{
		Foreseen: found.Calls, More: found.More, Refused: len(found.Refused), First: found.Refused[:min(len(found.Refused), effect.MaxNodes)],
	}
}

type differences struct {
	order     map[string]int // of the types
	what      effect.Preview
	proxies   map[string]bool // by node id: whether anything changes for it
	resources map[twoVersions]*changedResource
}

type twoVersions struct{ typeName, name, before, after string }

type changedResource struct {
	desired.Difference
	nodes map[string]struct{}
}

// add adds the differences on one stream of a proxy. A proxy may have several streams.
func (e *differences) add(node string, differences []desired.Difference) {
	e.proxies[node] = e.proxies[node] || len(differences) > 0
	if e.what == effect.PreviewProxies {
		return
	}
	for _, d := range differences {
		v := twoVersions{d.Type, d.Name, versionOf(d.Before), versionOf(d.After)}
		if e.resources[v] == nil {
			e.resources[v] = &changedResource{d, map[string]struct{}{}}
		}
		e.resources[v].nodes[node] = struct{}{}
	}
}

func versionOf(r *resource.Resource) string {
	if r == nil {
		return ""
	}
	return r.Version
}

func (e *differences) result() effect.Effect {
	out := effect.Effect{Proxies: len(e.proxies)}
	for node, concerned := range e.proxies {
		if concerned {
			out.Concerned++
			out.Nodes = append(out.Nodes, node)
		}
	}
	slices.Sort(out.Nodes)
	out.Nodes = out.Nodes[:min(len(out.Nodes), effect.MaxNodes)]

	versions := make([]twoVersions, 0, len(e.resources))
	for v := range e.resources {
		versions = append(versions, v)
	}
	slices.SortFunc(versions, func(a, b twoVersions) int {
		return cmp.Or(
			cmp.Compare(e.order[a.typeName], e.order[b.typeName]), strings.Compare(a.name, b.name),
			strings.Compare(a.before, b.before), strings.Compare(a.after, b.after),
		)
	})
	out.Omitted = max(0, len(versions)-effect.MaxResources)
	for _, v := range versions[:len(versions)-out.Omitted] {
		out.Resources = append(out.Resources, e.change(e.resources[v]))
	}
	return out
}

func (e *differences) change(r *changedResource) effect.ResourceChange {
	out := effect.ResourceChange{Type: r.Type, Name: r.Name, Change: effect.Changed, Proxies: len(r.nodes)}
	switch {
	case r.Before == nil:
		out.Change = effect.Added
	case r.After == nil:
		out.Change = effect.Removed
	}
	if e.what == effect.PreviewBodies {
		out.Before, out.After = jsonOf(r.Before), jsonOf(r.After)
	}
	return out
}

// jsonOf returns nil for nil, and for a message of a type that is not linked in.
func jsonOf(r *resource.Resource) json.RawMessage {
	if r == nil {
		return nil
	}
	body, err := r.Body.UnmarshalNew()
	if err != nil {
		return nil
	}
	text, err := protojson.Marshal(body)
	if err != nil {
		return nil
	}
	return text
}
