package verdict_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/xds/verdict"
	"github.com/portolan-mesh/portolan/xds/verdict/index"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// TestAdviceOfPlaintext: a change that takes encryption away says which endpoints get or take
// plaintext by it. One that adds encryption, or concerns others, says nothing.
func TestAdviceOfPlaintext(t *testing.T) {
	t.Parallel()
	web := func(endpoints string) string {
		return xdstest.Object("ServiceEntry", "web", "{hosts: [web.test], location: MESH_INTERNAL, resolution: STATIC, ports: [{number: 80, name: http, protocol: HTTP, targetPort: 8080}], endpoints: ["+endpoints+"]}")
	}
	policy := func(name, spec string) string { return xdstest.Object("PeerAuthentication", name, spec) }
	const (
		labelled, bare = "{address: 10.0.0.1, serviceAccount: web, labels: {app: web}}", "{address: 10.0.0.1, labels: {app: web}}"
		strict         = "{mtls: {mode: STRICT}}"
		off            = "{mtls: {mode: DISABLE}}"
		sent, taken    = "clients send plaintext where they encrypted: 10.0.0.1:8080 of web.test: keep", "plaintext is taken where it was refused: 10.0.0.1:8080 of web.test: keep"
	)
	disabled := rule("web", "{host: web.test, trafficPolicy: {tls: {mode: DISABLE}}}")
	mutual := rule("web", "{host: web.test, trafficPolicy: {tls: {mode: ISTIO_MUTUAL}}}")
	for name, c := range map[string]struct {
		is     []string
		put    string
		delete string
		want   []string
	}{
		"STRICT to DISABLE":     {is: []string{web(labelled), policy("default", strict)}, put: policy("default", off), want: []string{sent, taken}},
		"STRICT to PERMISSIVE":  {is: []string{web(labelled), policy("default", strict)}, put: policy("default", "{mtls: {mode: PERMISSIVE}}"), want: []string{taken}},
		"PERMISSIVE to DISABLE": {is: []string{web(labelled)}, put: policy("default", off), want: []string{sent}},
		"STRICT goes":           {is: []string{web(labelled), policy("default", strict)}, delete: "peerauthentication/default/default", want: []string{taken}},
		"STRICT goes, that of the mesh stays": {
			is: []string{web(labelled), policy("default", strict), policy("istio-system/default", strict)}, delete: "peerauthentication/default/default"},
		"that of the mesh goes":           {is: []string{web(labelled), policy("istio-system/default", strict)}, delete: "peerauthentication/istio-system/default", want: []string{taken}},
		"a workload below STRICT":         {is: []string{web(labelled), policy("default", strict)}, put: policy("web", "{selector: {matchLabels: {app: web}}, mtls: {mode: DISABLE}}"), want: []string{sent, taken}},
		"a port below STRICT":             {is: []string{web(labelled), policy("default", strict)}, put: policy("web", "{selector: {matchLabels: {app: web}}, portLevelMtls: {8080: {mode: PERMISSIVE}}}"), want: []string{taken}},
		"another port":                    {is: []string{web(labelled), policy("default", strict)}, put: policy("web", "{selector: {matchLabels: {app: web}}, portLevelMtls: {9090: {mode: DISABLE}}}")},
		"another namespace":               {is: []string{web(labelled), policy("istio-system/default", strict)}, put: policy("shop/default", off)},
		"to STRICT":                       {is: []string{web(labelled), policy("default", off)}, put: policy("default", strict)},
		"DISABLE where nothing encrypts":  {is: []string{web(bare)}, put: policy("default", off)},
		"a rule that disables it":         {is: []string{web(labelled)}, put: disabled, want: []string{sent}},
		"a rule for a pattern":            {is: []string{web(labelled)}, put: rule("all", "{host: '*.test', trafficPolicy: {tls: {mode: DISABLE}}}"), want: []string{sent}},
		"a rule for a port":               {is: []string{web(labelled)}, put: rule("web", "{host: web.test, trafficPolicy: {portLevelSettings: [{port: {number: 80}, tls: {mode: DISABLE}}]}}"), want: []string{sent}},
		"a rule for another port":         {is: []string{web(labelled)}, put: rule("web", "{host: web.test, trafficPolicy: {portLevelSettings: [{port: {number: 81}, tls: {mode: DISABLE}}]}}")},
		"a rule for its subset":           {is: []string{web(labelled)}, put: rule("web", "{host: web.test, subsets: [{name: a, labels: {app: web}, trafficPolicy: {tls: {mode: DISABLE}}}]}"), want: []string{sent}},
		"a rule for another subset":       {is: []string{web(labelled)}, put: rule("web", "{host: web.test, subsets: [{name: a, labels: {app: x}, trafficPolicy: {tls: {mode: DISABLE}}}]}")},
		"a rule that goes, without label": {is: []string{web(bare), mutual}, delete: "destinationrule/default/web", want: []string{sent}},
		"a rule that goes, with a label":  {is: []string{web(labelled), mutual}, delete: "destinationrule/default/web"},
		"a rule without TLS":              {is: []string{web(labelled)}, put: rule("web", "{host: web.test}")},
		"the label goes":                  {is: []string{web(labelled)}, put: web(bare), want: []string{sent}},
		"the label goes, a rule stays":    {is: []string{web(labelled), mutual}, put: web(bare)},
		"an endpoint that is new":         {is: []string{web(labelled)}, put: web(labelled + ", {address: 10.0.0.2}")},
		"many": {
			is:  []string{web(labelled + ", {address: 10.0.0.2, serviceAccount: web}, {address: 10.0.0.3, serviceAccount: web}, {address: 10.0.0.4, serviceAccount: web}, {address: 10.0.0.5, serviceAccount: web}")},
			put: policy("default", off), want: []string{"10.0.0.1:8080 of web.test, 10.0.0.2:8080 of web.test, 10.0.0.3:8080 of web.test and 2 more: keep"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := xdstest.NewWorld(t, c.is...)
			d := deletions{is: verdict.Facts{Mesh: w.Context()}}
			var op storage.Op
			if c.put != "" {
				op = storage.Op{Verb: storage.Put, Config: xdstest.Objects(t, c.put)[0]}
				w.Apply(c.put)
			} else {
				op = storage.Op{Verb: storage.Delete, Key: keyOf(c.delete)}
				w.Delete(c.delete)
			}
			d.would = verdict.Facts{Mesh: w.Context()}
			var got []string
			for _, a := range index.NewKeeper(d).Advise([]storage.Op{op})[0] {
				if strings.Contains(a.Text, string(verdict.PlaintextBegins)) {
					got = append(got, a.Text)
				}
			}
			if !slices.EqualFunc(got, c.want, strings.Contains) {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

// keyOf returns the key of an object, kind/namespace/name.
func keyOf(text string) config.Key {
	parts := strings.Split(text, "/")
	return config.Key{Kind: schema.Pilot().Named(parts[0]).GroupVersionKind, Namespace: parts[1], Name: parts[2]}
}
