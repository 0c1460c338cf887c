package explain_test

import (
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/xds/explain"
	"github.com/portolan-mesh/portolan/xds/generate/catalogue"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// TestForesee: a changed policy tells whom it selects, and which calls it would newly refuse: of
// sidecars that see the service, and of gateways that route to it, with the requests of routes.
func TestForesee(t *testing.T) {
	t.Parallel()
	m := guarded(t)
	m.Apply(
		xdstest.Object("Sidecar", "shop/free", "{workloadSelector: {labels: {app: free}}, egress: [{hosts: ['./free.test']}]}"),
		xdstest.Object("VirtualService", "shop/mesh", "{hosts: [web.test], http: [{match: [{uri: {prefix: /shelf}, method: {exact: POST}}], route: [{destination: {host: web.test}}]}]}"),
	)
	key := func(name string) config.Key {
		return config.Key{Kind: schema.AuthorizationPolicy, Namespace: "shop", Name: name}
	}
	for name, c := range map[string]struct {
		op       storage.Op
		selected int
		refused  string
		open     string
	}{
		"DENY of GET by other": {
			storage.Op{Verb: storage.Put, Config: xdstest.Objects(t, xdstest.Object("AuthorizationPolicy", "shop/new", "{selector: {matchLabels: {app: web}}, action: DENY, rules: [{from: [{source: {ipBlocks: [10.1.0.8]}}], to: [{operation: {methods: [GET]}}]}]}"))[0]}, 2,
			"other to web.test:80 at web1 GET /, other to web.test:80 at web2 GET /", "",
		},
		"DENY of what a route matches, over mutual TLS": {
			storage.Op{Verb: storage.Put, Config: xdstest.Objects(t, xdstest.Object("AuthorizationPolicy", "shop/new", "{selector: {matchLabels: {app: web}}, action: DENY, rules: [{to: [{operation: {paths: [/shelf*]}}]}]}"))[0]}, 2,
			"client to web.test:80 at web1 POST /shelf",
			"db to web.test:80 at web1 POST /shelf, edge to web.test:80 at web1 POST /shelf, web2 to web.test:80 at web1 POST /shelf",
		},
		"ALLOW for nobody": {
			storage.Op{Verb: storage.Put, Config: xdstest.Objects(t, xdstest.Object("AuthorizationPolicy", "shop/new", "{selector: {matchLabels: {app: free}}}"))[0]}, 1,
			"client to free.test:80 at free GET /, db to free.test:80 at free GET /, other to free.test:80 at free GET /, web1 to free.test:80 at free GET /, web2 to free.test:80 at free GET /", "",
		},
		"a dry run": {
			storage.Op{Verb: storage.Put, Config: watched(xdstest.Objects(t, xdstest.Object("AuthorizationPolicy", "shop/new", "{selector: {matchLabels: {app: free}}}"))[0])}, 1, "", "",
		},
		"the only ALLOW is deleted": {storage.Op{Verb: storage.Delete, Key: key("db")}, 1, "", ""},
		"for nobody":                {storage.Op{Verb: storage.Put, Config: xdstest.Objects(t, xdstest.Object("AuthorizationPolicy", "shop/new", "{selector: {matchLabels: {app: x}}}"))[0]}, 0, "", ""},
	} {
		got := explain.Foresee(m.Context(), m.ContextAfter([]storage.Op{c.op}), catalogue.Types(), m.nodes, []config.Key{c.op.Target()})
		if n := len(got.Selected[c.op.Target()]); n != c.selected {
			t.Errorf("%s: %d are selected: %v", name, n, got.Selected)
		}
		if refused := strings.Join(got.Refused, ", "); refused != c.refused {
			t.Errorf("%s: of %d calls are refused:\n%s\nwant:\n%s", name, got.Calls, refused, c.refused)
		}
		if open := strings.Join(got.Open, ", "); open != c.open {
			t.Errorf("%s: of %d calls it is not known:\n%s\nwant:\n%s", name, got.Calls, open, c.open)
		}
	}
}

func watched(object *config.Config) *config.Config {
	object.Annotations = map[string]string{"istio.io/dry-run": "true"}
	return object
}
