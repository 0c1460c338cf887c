package patch_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/xds/envoy/envoytest"
	"github.com/portolan-mesh/portolan/xds/envoy/patch"
	"github.com/portolan-mesh/portolan/xds/envoy/patch/patchtest"
)

// TestCompare: EnvoyFilters apply by priority, those of the root namespace first, by creation time,
// and by name and namespace.
func TestCompare(t *testing.T) {
	t.Parallel()
	of := func(name string, priority int32, created int64) *patch.Filter {
		namespace, name, _ := strings.Cut(name, "/")
		return patch.Parse(namespace, name, time.Unix(created, 0), &networking.EnvoyFilter{Priority: priority})
	}
	want := []*patch.Filter{
		of("shop/early", -1, 9), of("root/b", 0, 5), of("root/a", 0, 6), of("shop/z", 0, 1),
		of("shop/a", 0, 2), of("edge/b", 0, 2), of("shop/b", 0, 2), of("root/late", 7, 1),
	}
	got := slices.Clone(want)
	slices.Reverse(got)
	slices.SortFunc(got, func(a, b *patch.Filter) int { return a.Compare(b, "root") })
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("%d is %s/%s, want %s/%s", i, got[i].Namespace, got[i].Name, want[i].Namespace, want[i].Name)
		}
	}
}

// TestForProxy: a patch is for proxies of a version and with metadata.
func TestForProxy(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		match    string
		version  string
		metadata map[string]string
		want     bool
	}{
		"any":                         {"{}", "", nil, true},
		"version":                     {`{proxyVersion: '^1\.31.*'}`, "1.31.1", nil, true},
		"another version":             {`{proxyVersion: '^1\.31.*'}`, "1.30.2", nil, false},
		"no version":                  {`{proxyVersion: '.*'}`, "", nil, false},
		"an expression without start": {`{proxyVersion: '31'}`, "1.31.1", nil, true},
		"metadata":                    {`{metadata: {A: b, C: d}}`, "", map[string]string{"A": "b", "C": "d", "E": "f"}, true},
		"some metadata":               {`{metadata: {A: b, C: d}}`, "", map[string]string{"A": "b"}, false},
		"both":                        {`{proxyVersion: '1', metadata: {A: b}}`, "2", map[string]string{"A": "b"}, false},
	} {
		p := filterOf(t, `[{applyTo: CLUSTER, match: {proxy: `+c.match+`}, patch: {operation: REMOVE}}]`).Patches[0]
		if got := p.ForProxy(c.version, c.metadata); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	p := filterOf(t, `[{applyTo: CLUSTER, match: {proxy: {metadata: {C: d, A: b}}}, patch: {operation: REMOVE}}]`).Patches[0]
	if got := p.MetadataKeys(); !slices.Equal(got, []string{"A", "C"}) {
		t.Errorf("keys: %q", got)
	}
}

// TestParseErrors: a patch that cannot be read says why, and the others are read.
func TestParseErrors(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("1", 1025)
	for name, c := range map[string]struct{ patch, want string }{
		"nothing":             {`{}`, "applyTo INVALID is unknown"},
		"no operation":        {`{applyTo: CLUSTER}`, "patch.operation is missing"},
		"no value":            {`{applyTo: CLUSTER, patch: {operation: MERGE}}`, "patch.value is missing: operation MERGE needs one"},
		"a wrong expression":  {`{applyTo: CLUSTER, match: {proxy: {proxyVersion: '('}}, patch: {operation: REMOVE}}`, "is no regular expression"},
		"a long expression":   {`{applyTo: CLUSTER, match: {proxy: {proxyVersion: '` + long + `'}}, patch: {operation: REMOVE}}`, "has 1025 characters, 1024 are allowed"},
		"no type of a struct": {`{applyTo: HTTP_FILTER, patch: {operation: ADD, value: {name: a, typed_config: {"@type": type.googleapis.com/xds.type.v3.TypedStruct}}}}`, "configPatches[0].patch.value.typed_config.type_url is missing"},
		"a wrong member": {`{applyTo: HTTP_FILTER, patch: {operation: ADD, value: {name: a, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.buffer.v3.Buffer, max_request_bytes: many}}}}`,
			"configPatches[0].patch.value.typed_config is no envoy.extensions.filters.http.buffer.v3.Buffer: invalid value for uint32"},
		"in a list": {`{applyTo: CLUSTER, patch: {operation: MERGE, value: {filters: [{name: a, typed_config: {"@type": type.googleapis.com/envoy.none.v3.None}}]}}}`,
			"configPatches[0].patch.value.filters[0].typed_config.@type is type.googleapis.com/envoy.none.v3.None, which Envoy 1.40 does not know: mend the name"},
	} {
		patches := filterOf(t, "["+c.patch+`, {applyTo: CLUSTER, patch: {operation: REMOVE}}]`).Patches
		if err := patches[0].Err; err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		if patches[1].Err != nil {
			t.Errorf("%s: the other one: %v", name, patches[1].Err)
		}
		if got := patches[0].String(); got != "shop/a configPatches[0]" {
			t.Errorf("%s: it is %s", name, got)
		}
	}
}

// TestAdded: each name is added once, and inbound only where the patch says so.
func TestAdded(t *testing.T) {
	t.Parallel()
	patches := filterOf(t, `
- {applyTo: CLUSTER, patch: {operation: ADD, value: {name: a, connect_timeout: 1s}}}
- {applyTo: CLUSTER, match: {context: SIDECAR_INBOUND}, patch: {operation: ADD, value: {name: b}}}
- {applyTo: CLUSTER, patch: {operation: INSERT_FIRST, value: {name: a}}}
- {applyTo: CLUSTER, match: {context: GATEWAY}, patch: {operation: ADD, value: {name: c}}}
- {applyTo: LISTENER, patch: {operation: ADD, value: {name: l, address: {socket_address: {address: 0.0.0.0, port_value: 1}}, filter_chains: [{}]}}}
- {applyTo: LISTENER, patch: {operation: ADD, value: {address: {socket_address: {address: 0.0.0.0, port_value: 1}}, filter_chains: [{}]}}}
- {applyTo: VIRTUAL_HOST, match: {routeConfiguration: {portNumber: 80}}, patch: {operation: ADD, value: {name: v, domains: [v]}}}
- {applyTo: VIRTUAL_HOST, match: {routeConfiguration: {portNumber: 81}}, patch: {operation: ADD, value: {name: w, domains: [w]}}}
`).Patches
	for in, want := range map[networking.EnvoyFilter_PatchContext]string{inbound: "b", outbound: "a | 2: adds a, which shop/a configPatches[0] adds already", gateway: "a c | 2: adds a, which shop/a configPatches[0] adds already"} {
		got, results := patch.AddedClusters(in, patches)
		if text := listed(got, results); text != want {
			t.Errorf("%s: %s, want %s", in, text, want)
		}
		for _, m := range got {
			m.Name = "changed" // it is not shared
		}
	}
	listeners, results := patch.AddedListeners(outbound, patches)
	if got, want := listed(listeners, results), "l | 5: adds a resource without a name"; got != want {
		t.Errorf("listeners: %s, want %s", got, want)
	}
	if listeners, _ := patch.AddedListeners(inbound, patches); len(listeners) > 0 {
		t.Errorf("inbound listeners: %v", listeners)
	}
	hosts, results := patch.AddedVirtualHosts(patch.Place{Context: outbound, Routes: "80"}, patches)
	if got := listed(hosts, results); got != "v" {
		t.Errorf("virtual hosts: %s", got)
	}
}

// listed has the names, and the errors behind them.
func listed[M interface{ GetName() string }](messages []M, results []patch.Result) string {
	var names, failed []string
	for _, m := range messages {
		names = append(names, m.GetName())
	}
	for _, r := range results {
		if r.Err != nil {
			failed = append(failed, strings.TrimSuffix(strings.TrimPrefix(r.Patch.String(), "shop/a configPatches["), "]")+": "+r.Err.Error())
		}
	}
	return strings.Join(append([]string{strings.Join(names, " ")}, failed...), " | ")
}

// TestExtensions: the first of a name counts, until it is replaced.
func TestExtensions(t *testing.T) {
	t.Parallel()
	buffer := func(operation, name, bytes string) string {
		return `- {applyTo: EXTENSION_CONFIG, patch: {operation: ` + operation + `, value: {name: ` + name + `, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.buffer.v3.Buffer, max_request_bytes: ` + bytes + `}}}}` + "\n"
	}
	got, results := patch.Extensions(filterOf(t, buffer("ADD", "a", "1")+buffer("ADD", "b", "2")+buffer("ADD", "a", "3")+buffer("REPLACE", "b", "4")+buffer("REPLACE", "c", "5")+buffer("MERGE", "a", "6")).Patches)
	if text, want := listed(got, results), "a b | 2: adds a, which shop/a configPatches[0] adds already"; text != want {
		t.Errorf("%s, want %s", text, want)
	}
	if a, b := envoytest.Look(t, got[0], "typed_config.max_request_bytes"), envoytest.Look(t, got[1], "typed_config.max_request_bytes"); a != "1" || b != "4" {
		t.Errorf("they have %s and %s", a, b)
	}
}

// TestSelect: a selection has the patches that may change a resource, and is equal to another one
// exactly if they have the same patches.
func TestSelect(t *testing.T) {
	t.Parallel()
	patches := filterOf(t, `
- {applyTo: CLUSTER, match: {cluster: {service: web.example.com}}, patch: {operation: REMOVE}}
- {applyTo: CLUSTER, match: {context: SIDECAR_INBOUND}, patch: {operation: REMOVE}}
- {applyTo: HTTP_FILTER, match: {listener: {portNumber: 80}}, patch: {operation: REMOVE}}
- {applyTo: LISTENER, match: {listener: {name: virtualInbound}}, patch: {operation: REMOVE}}
- {applyTo: HTTP_ROUTE, match: {routeConfiguration: {portNumber: 80, vhost: {name: "web.example.com:80"}}}, patch: {operation: REMOVE}}
- {applyTo: VIRTUAL_HOST, patch: {operation: ADD, value: {name: a, domains: [a]}}}
- {applyTo: CLUSTER, patch: {operation: MERGE, value: {connect_timeout: soon}}}
`).Patches
	for name, c := range map[string]struct {
		at   patch.Place
		want []int
	}{
		"a cluster":                {patch.Place{Kind: networking.EnvoyFilter_CLUSTER, Context: outbound, Name: "outbound|80||web.example.com"}, []int{0}},
		"another cluster":          {patch.Place{Kind: networking.EnvoyFilter_CLUSTER, Context: outbound, Name: "outbound|80||api.example.com"}, nil},
		"an inbound cluster":       {patch.Place{Kind: networking.EnvoyFilter_CLUSTER, Context: inbound, Name: "inbound|80||", Hosts: "web.example.com"}, []int{0, 1}},
		"a listener":               {patch.Place{Kind: networking.EnvoyFilter_LISTENER, Context: outbound, Name: "0.0.0.0_80", Port: 80}, []int{2}},
		"a listener of any port":   {patch.Place{Kind: networking.EnvoyFilter_LISTENER, Context: outbound, Name: "0.0.0.0_80"}, []int{2}},
		"another listener":         {patch.Place{Kind: networking.EnvoyFilter_LISTENER, Context: outbound, Name: "0.0.0.0_81", Port: 81}, nil},
		"a virtual listener":       {patch.Place{Kind: networking.EnvoyFilter_LISTENER, Context: inbound, Name: "virtualInbound", Port: 15006}, []int{2, 3, 4, 5}},
		"routes":                   {patch.Place{Kind: networking.EnvoyFilter_ROUTE_CONFIGURATION, Context: outbound, Name: "80"}, []int{4, 5}},
		"routes of another port":   {patch.Place{Kind: networking.EnvoyFilter_ROUTE_CONFIGURATION, Context: outbound, Name: "81"}, []int{5}},
		"routes of one service":    {patch.Place{Kind: networking.EnvoyFilter_ROUTE_CONFIGURATION, Context: outbound, Name: "web.example.com:80"}, []int{4, 5}},
		"a virtual host":           {patch.Place{Kind: networking.EnvoyFilter_VIRTUAL_HOST, Context: outbound, Routes: "80", Name: "web.example.com:80"}, []int{4}},
		"another virtual host":     {patch.Place{Kind: networking.EnvoyFilter_VIRTUAL_HOST, Context: outbound, Routes: "80", Name: "api.example.com:80"}, nil},
		"something without a kind": {patch.Place{Context: outbound, Name: "80"}, nil},
	} {
		s := patch.Select(c.at, patches)
		var got []int
		for _, p := range s.Patches() {
			got = append(got, p.Index)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
		if s.Empty() != (len(c.want) == 0) {
			t.Errorf("%s: empty is %v", name, s.Empty())
		}
		if any(s) != any(patch.Select(c.at, slices.Clone(patches))) {
			t.Errorf("%s: two selections of the same patches differ", name)
		}
		if !s.Empty() && any(s) == any(patch.Select(c.at, patches[len(patches)-1:])) {
			t.Errorf("%s: two selections of other patches are equal", name)
		}
		back, err := patch.ParsePlace(c.at.String())
		if err != nil || back != c.at {
			t.Errorf("%s: %+v (%v)", name, back, err)
		}
	}
	if _, err := patch.ParsePlace("{"); err == nil {
		t.Error("half a place is read")
	}
}

// TestSelectIsWide: a patch that changes a resource of testdata is in the selection for it.
func TestSelectIsWide(t *testing.T) {
	t.Parallel()
	patches := slices.Concat(everyPatch(t)...)
	for _, b := range patchtest.Bases(t) {
		name, m, at := b.Name, b.Message, b.Place
		if name == "bootstrap" {
			continue
		}
		_, results := patchtest.Apply(m, at, patches)
		selected := patch.Select(placeOf(m, at), patches).Patches()
		for _, r := range results {
			if !slices.Contains(selected, r.Patch) && reached(m, at, r.Patch) {
				t.Errorf("%s: %s applies and is not selected", name, r.Patch)
			}
		}
		again, _ := patchtest.Apply(m, at, selected)
		whole, _ := patchtest.Apply(m, at, patches)
		if !proto.Equal(again, whole) {
			t.Errorf("%s: the selected patches make something else of it", name)
		}
	}
}

// reached says whether a patch alone changes the message: others need what an earlier patch adds.
func reached(m proto.Message, at patch.Place, p *patch.Patch) bool {
	_, results := patchtest.Apply(m, at, []*patch.Patch{p})
	return len(results) > 0
}
