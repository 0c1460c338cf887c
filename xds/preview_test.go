package xds_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/portolan-mesh/portolan/discovery/serviceentry"
	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/longtest"
	"github.com/portolan-mesh/portolan/storage/phase"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/xds/admin"
	"github.com/portolan-mesh/portolan/xds/admin/effect"
	"github.com/portolan-mesh/portolan/xds/desired"
	"github.com/portolan-mesh/portolan/xds/generate/catalogue"
	"github.com/portolan-mesh/portolan/xds/mesh/peer"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// opsBetween returns the operations that turn some objects into others.
func opsBetween(from, to pmap.Map[*config.Config]) (ops []storage.Op) {
	for c := range pmap.Diff(from, to) {
		if c.HasNew {
			ops = append(ops, storage.Op{Verb: storage.Restore, Config: c.New})
		} else {
			ops = append(ops, storage.Op{Verb: storage.Delete, Key: c.Old.Key()})
		}
	}
	return ops
}

// TestPreview: a preview of operations says which resources would change for which proxies,
// and changes nothing.
func TestPreview(t *testing.T) {
	t.Parallel()
	r := newReplica(t, serviceentry.Switches{})
	object := func(kind, name, spec string) *config.Config { return objectOf(t, kind, name, spec, 1) }
	rule := object("DestinationRule", "shop/web", "{host: web.example, subsets: [{name: v1, labels: {v: '1'}}]}")
	r.set(object("ServiceEntry", "shop/web", "{hosts: [web.example], ports: [{number: 80, name: http, protocol: HTTP}], resolution: STATIC, endpoints: [{address: 10.1.0.1}]}"), rule)
	r.commit()
	r.push()
	for _, node := range []*corev3.Node{
		xdstest.NewNode("sidecar", "10.0.0.1", "a", "shop", nil), xdstest.NewNode("sidecar", "10.0.0.2", "b", "shop", nil),
		xdstest.NewNode("sidecar", "10.0.0.3", "c", "edge", nil),
	} {
		r.server.Connect(t, r.now, node).Open()
	}
	nodes := func(names string) (out []string) {
		for _, name := range strings.Fields(names) {
			namespace := "shop"
			if name == "c" {
				namespace = "edge"
			}
			out = append(out, fmt.Sprintf("sidecar~10.0.0.%d~%s~%s.svc.cluster.local", strings.Index("abc", name)+1, name, namespace))
		}
		return out
	}
	for name, test := range map[string]struct {
		op        storage.Op
		nodes     string
		resources []string // type, name, change, proxies
	}{
		"of a namespace": {
			op:    storage.Op{Verb: storage.Put, Config: object("VirtualService", "shop/web", "{hosts: [web.example], exportTo: ['.'], http: [{route: [{destination: {host: web.example, subset: v1}}]}]}")},
			nodes: "a b", resources: []string{"VHDS 80/web.example:80 changed 2"},
		},
		"for all": {
			op:    storage.Op{Verb: storage.Delete, Key: rule.Key()},
			nodes: "a b c",
			resources: []string{
				"CDS outbound|80|v1|web.example removed 3", "CDS outbound|80||web.example changed 3", // which names its rule
				"EDS outbound|80|v1|web.example removed 3",
			},
		},
		"new": {
			op:    storage.Op{Verb: storage.Create, Config: object("ServiceEntry", "edge/own", "{hosts: [own.example], exportTo: ['.'], ports: [{number: 80, name: http, protocol: HTTP}], resolution: STATIC, endpoints: [{address: 10.0.0.9}]}")},
			nodes: "c",
			resources: []string{
				"CDS outbound|80||own.example added 1", "EDS outbound|80||own.example added 1", "VHDS 80/own.example:80 added 1",
			},
		},
		"a workload's own": {
			op:    storage.Op{Verb: storage.Put, Config: object("Sidecar", "edge/mine", "{ingress: [{port: {number: 8080, name: in, protocol: HTTP}, defaultEndpoint: '127.0.0.1:80'}]}")},
			nodes: "c", resources: []string{"CDS inbound|8080|| added 1", "LDS 10.0.0.3_8080 added 1"},
		},
		"for nobody": {
			op: storage.Op{Verb: storage.Put, Config: object("VirtualService", "other/web", "{hosts: [other.example], exportTo: ['.'], http: [{route: [{destination: {host: web.example}}]}]}")},
		},
		"no change": {op: storage.Op{Verb: storage.Put, Config: rule}},
	} {
		t.Run(name, func(t *testing.T) {
			want := effect.Effect{Proxies: 3, Nodes: nodes(test.nodes), Concerned: len(strings.Fields(test.nodes))}
			got, known := admin.Preview(r.server, catalogue.Types(), []storage.Op{test.op}, effect.PreviewProxies)
			if diff := cmp.Diff(want, got); !known || diff != "" {
				t.Errorf("known %v, proxies (-want +got)\n%s", known, diff)
			}
			for _, what := range []effect.Preview{effect.PreviewResources, effect.PreviewBodies} {
				got, _ = admin.Preview(r.server, catalogue.Types(), []storage.Op{test.op}, what)
				var resources []string
				for _, c := range got.Resources {
					resources = append(resources, fmt.Sprint(c.Type, " ", c.Name, " ", c.Change, " ", c.Proxies))
					bodies := what == effect.PreviewBodies
					if (c.Before != nil) != (bodies && c.Change != effect.Added) || (c.After != nil) != (bodies && c.Change != effect.Removed) {
						t.Errorf("%s: the body was %s, is %s", c.Name, c.Before, c.After)
					}
				}
				if diff := cmp.Diff(test.resources, resources); diff != "" {
					t.Errorf("%s (-want +got)\n%s", what, diff)
				}
			}
		})
	}
}

// TestPreviewOfAChangeInPhases: of a change of modes a preview says what the last phase changes, and
// which namespaces have phases. It leaves out a phase that comes anyway.
func TestPreviewOfAChangeInPhases(t *testing.T) {
	t.Parallel()
	r := newReplica(t, serviceentry.Switches{})
	r.set(objectOf(t, "ServiceEntry", "shop/web", "{hosts: [web.example], location: MESH_INTERNAL, ports: [{number: 80, name: http, protocol: HTTP}], resolution: STATIC, endpoints: [{address: 10.0.0.1, serviceAccount: web}]}", 1))
	r.commit()
	r.push()
	for ip, name := range map[string]string{"10.0.0.1": "server", "10.0.0.2": "client"} {
		node := xdstest.NewNode("sidecar", ip, name, "shop", nil)
		for key, value := range map[string]string{
			"INTERCEPTION_MODE": "REDIRECT", "TLS_CLIENT_CERT_CHAIN": "/c", "TLS_CLIENT_KEY": "/k", "TLS_CLIENT_ROOT_CERT": "/r",
		} {
			node.Metadata.Fields[key] = structpb.NewStringValue(value)
		}
		r.server.Connect(t, r.now, node).Open()
	}
	mode := func(mode string) *config.Config {
		return objectOf(t, "PeerAuthentication", "shop/default", "{mtls: {mode: "+mode+"}}", 1)
	}
	at := func(settled string, toward *config.Config) []*config.Config {
		p := &phase.Peers{Toward: (*peer.Policies)(nil).Replace(nil, toward).Digest()}
		if settled != "" {
			p.Settled = []phase.Policy{{Name: "default", Mode: settled}}
		}
		return []*config.Config{toward, {Meta: config.Meta{GroupVersionKind: schema.PeerPhase, Namespace: "shop", Name: schema.PeerPhaseName}, Spec: p}}
	}
	for _, c := range []struct {
		name      string
		now       []*config.Config // that are stored before
		to        *config.Config
		phases    []string
		concerned int
	}{
		{name: "to STRICT", to: mode("STRICT"), phases: []string{"shop"}, concerned: 2}, // both are servers
		{name: "to DISABLE", to: mode("DISABLE"), phases: []string{"shop"}, concerned: 2},
		{name: "to what holds without a policy", to: mode("PERMISSIVE"), phases: []string{"shop"}},
		{name: "the same, on the way", now: at("", mode("STRICT")), to: mode("STRICT")},
		{name: "another, on the way", now: at("", mode("STRICT")), to: mode("DISABLE"), phases: []string{"shop"}, concerned: 2},
		{name: "back, on the way", now: at("DISABLE", mode("STRICT")), to: mode("DISABLE"), concerned: 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			r.set(c.now...)
			r.commit()
			r.push()
			got, known := admin.Preview(r.server, catalogue.Types(), []storage.Op{{Verb: storage.Put, Config: c.to}}, effect.PreviewProxies)
			if !known || got.Concerned != c.concerned || !slices.Equal(got.Phases, c.phases) {
				t.Errorf("known %v: %+v", known, got)
			}
			r.remove(c.now...)
			r.commit()
			r.push()
		})
	}
}

// TestPreviewOfPolicies: a change of what judges requests concerns the proxies whose filters change.
func TestPreviewOfPolicies(t *testing.T) {
	t.Parallel()
	r := newReplica(t, serviceentry.Switches{})
	r.set(
		objectOf(t, "ServiceEntry", "shop/web", "{hosts: [web.example], location: MESH_INTERNAL, ports: [{number: 80, name: http, protocol: HTTP}], resolution: STATIC, endpoints: [{address: 10.0.0.1}]}", 1),
		objectOf(t, "Gateway", "shop/edge", "{selector: {app: edge}, servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: ['*']}]}", 1),
		objectOf(t, "AuthorizationPolicy", "shop/old", "{selector: {matchLabels: {app: edge}}, action: DENY, rules: [{}]}", 1),
	)
	r.commit()
	r.push()
	for _, node := range []*corev3.Node{
		xdstest.NewNode("sidecar", "10.0.0.1", "web", "shop", map[string]string{"app": "web"}), xdstest.NewNode("router", "10.0.0.2", "edge", "shop", map[string]string{"app": "edge"}),
		xdstest.NewNode("sidecar", "10.0.0.3", "other", "elsewhere", nil),
	} {
		node.Metadata.Fields["INTERCEPTION_MODE"] = structpb.NewStringValue("REDIRECT")
		r.server.Connect(t, r.now, node).Open()
	}
	policy := func(name, spec string) storage.Op {
		return storage.Op{Verb: storage.Put, Config: objectOf(t, "AuthorizationPolicy", "shop/"+name, spec, 1)}
	}
	for name, c := range map[string]struct {
		op   storage.Op
		want string // names of nodes
	}{
		"of a namespace": {policy("new", "{action: DENY, rules: [{to: [{operation: {paths: [/admin]}}]}]}"), "edge web"},
		"of a workload":  {policy("new", "{selector: {matchLabels: {app: web}}, rules: [{}]}"), "web"},
		"of a Gateway":   {policy("new", "{targetRefs: [{group: networking.istio.io, kind: Gateway, name: edge}], rules: [{}]}"), "edge"},
		"of nobody":      {policy("new", "{selector: {matchLabels: {app: x}}}"), ""},
		"a change":       {policy("old", "{selector: {matchLabels: {app: edge}}, action: DENY, rules: [{to: [{operation: {paths: [/admin]}}]}]}"), "edge"},
		"a deletion":     {storage.Op{Verb: storage.Delete, Key: policy("old", "{}").Target()}, "edge"},
		"of tokens":      {storage.Op{Verb: storage.Put, Config: objectOf(t, "RequestAuthentication", "shop/t", "{selector: {matchLabels: {app: web}}, jwtRules: [{issuer: i, jwks: '{\"keys\":[{\"kty\":\"OKP\",\"crv\":\"Ed25519\",\"x\":\"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo\"}]}'}]}", 1)}, "web"},
	} {
		got, known := admin.Preview(r.server, catalogue.Types(), []storage.Op{c.op}, effect.PreviewProxies)
		var nodes []string
		for _, id := range got.Nodes {
			nodes = append(nodes, strings.Split(strings.Split(id, "~")[2], ".")[0])
		}
		slices.Sort(nodes)
		if strings.Join(nodes, " ") != c.want || !known || got.Concerned != len(nodes) {
			t.Errorf("%s: concerned are %q, want %q", name, nodes, c.want)
		}
	}
}

// TestAPreviewCostsNoMoreThanAFewWrites: a dry run of one change allocates at most three
// times as much as the change itself. Both are counted from the object to the resources of
// proxies in twenty namespaces. The cost does not grow with the mesh.
func TestAPreviewCostsNoMoreThanAFewWrites(t *testing.T) {
	services := longtest.Histories(1_500, 10_000)
	small, large := newReference(t, 100, 20, true), newReference(t, services, 20, true)
	small.sync()
	large.sync()
	for kind := range meshChanges() {
		few := testing.AllocsPerRun(5, func() { small.foresee(kind) })
		many := testing.AllocsPerRun(5, func() { large.foresee(kind) })
		write := testing.AllocsPerRun(5, func() { large.do(kind) })
		t.Logf("%s: %.0f allocations among 100 services, %.0f among %d, where the change itself takes %.0f", kind, few, many, services, write)
		if many > 2*few || many > 3*write {
			t.Errorf("%s: %.0f allocations among %d services, %.0f among 100, %.0f for the change itself", kind, many, services, few, write)
		}
	}
}

// foresee returns what a change of a kind would change in the resources of each proxy. It
// does not make the change.
func (r *reference) foresee(kind string) [][]desired.Difference {
	r.server.SetContext(r.now)
	change := meshChanges()[kind](r.mesh, 2*(r.changes+1_000))
	var ops []storage.Op
	for _, object := range change.Objects {
		if change.Delete {
			ops = append(ops, storage.Op{Verb: storage.Delete, Key: object.Key()})
		} else {
			ops = append(ops, storage.Op{Verb: storage.Put, Config: object})
		}
	}
	is, would, known := r.server.WouldBe(ops)
	if !known {
		r.t.Fatal("there is no world")
	}
	var viewers []desired.Viewer
	for _, m := range r.members {
		viewers = append(viewers, desired.Viewer{Proxy: m.Proxy(), Reads: m.Reads()})
	}
	return r.groups.Foresee(is.Context, would.Context, viewers)
}
