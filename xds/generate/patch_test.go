package generate_test

import (
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/xds/generate"
	"github.com/portolan-mesh/portolan/xds/generate/catalogue"
	"github.com/portolan-mesh/portolan/xds/generate/endpoint"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/resource"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// generatorsIn returns the generators of a type, by their purpose.
func generatorsIn(t generate.ResourceType) map[string]generate.Generator {
	out := map[string]generate.Generator{t.Name: t.Generator}
	if t.Inbound != nil {
		out[t.Name+" inbound"] = t.Inbound
	}
	if t.Proxyless != nil {
		out[t.Name+" proxyless"] = t.Proxyless
	}
	return out
}

// implementsAndLoses says whether plain implements T, and whether wrapping it hides that.
func implementsAndLoses[T any](plain, wrapped generate.Generator) (is, lost bool) {
	has, is := generate.As[T](plain) // the catalogue patches some itself
	found, ok := generate.As[T](wrapped)
	return is, is != ok || is && any(found) != any(has)
}

// TestPatchedGeneratorsLoseNothing: As finds the optional interfaces of the catalogue's
// generators behind one patch and behind two.
func TestPatchedGeneratorsLoseNothing(t *testing.T) {
	t.Parallel()
	seen := map[string]int{}
	once := xdstest.Stamped(catalogue.Types())
	for _, wrapped := range [][]generate.ResourceType{once, xdstest.Stamped(once)} {
		for i, served := range catalogue.Types() {
			for name, plain := range generatorsIn(served) {
				patched := generatorsIn(wrapped[i])[name]
				if _, wraps := patched.(interface{ Unwrap() generate.Generator }); !wraps {
					t.Errorf("%s has no patches", name)
					continue
				}
				for capability, hidden := range map[string]func(plain, wrapped generate.Generator) (is, lost bool){
					"Emptier": implementsAndLoses[generate.Emptier], "Announcer": implementsAndLoses[generate.Announcer], "Composer": implementsAndLoses[generate.Composer],
				} {
					is, hides := hidden(plain, patched)
					if hides {
						t.Errorf("%s is a %s: %v, behind patches: %v", name, capability, is, !is)
					}
					if is {
						seen[capability]++
					}
				}
			}
		}
	}
	if len(seen) != 3 {
		t.Errorf("the catalogue has generators of each capability? %v", seen)
	}
}

// TestPatchesReachAllThatIsServed: patches reach the resources of classes, of workloads
// and of gRPC clients, and each virtual host in a route configuration.
func TestPatchesReachAllThatIsServed(t *testing.T) {
	t.Parallel()
	var addresses []string // so many that load assignments are put together
	for i := range 400 {
		addresses = append(addresses, fmt.Sprintf("10.2.%d.%d", i/200, i%200+1))
	}
	w := xdstest.NewWorld(t,
		xdstest.HTTPService("web", "web.example.com", "10.0.0.1"),
		xdstest.HTTPService("many", "many.example.com", addresses...),
		xdstest.Object("VirtualService", "web", "{hosts: [web.example.com], gateways: [mesh, edge/gw], http: [{route: [{destination: {host: web.example.com}}]}]}"),
		xdstest.Object("Gateway", "edge/gw", "{selector: {istio: gateway}, servers: [{port: {number: 8000, name: http, protocol: HTTP}, hosts: ['*']}]}"),
		"apiVersion: networking.istio.io/v1beta1\nkind: ProxyConfig\nmetadata: {name: threads, namespace: default}\nspec: {concurrency: 2}\n",
		"apiVersion: networking.istio.io/v1alpha3\nkind: EnvoyFilter\nmetadata: {name: flush, namespace: default}\nspec: {configPatches: [{applyTo: BOOTSTRAP, patch: {operation: MERGE, value: {stats_flush_interval: 9s}}}]}\n",
		"apiVersion: networking.istio.io/v1\nkind: WorkloadEntry\nmetadata: {name: probed, namespace: default, annotations: {portolan.io/probe: '{grpc: {port: 1}}'}}\nspec: {address: 10.0.0.1}\n")
	many, _, err := endpoint.Generator{}.Build(w.View(xdstest.Node{}), "outbound|80||many.example.com")
	if _, encoded := many.(resource.Encoded); err != nil || !encoded {
		t.Fatalf("the load assignment of many endpoints is a %T, not put together: %v", many, err)
	}
	plain, stamped := xdstest.NewGroups(catalogue.Types(), w.Context), xdstest.NewGroups(xdstest.Stamped(catalogue.Types()), w.Context)
	seen := map[string]bool{}
	parts := 0
	for _, n := range []xdstest.Node{
		{IP: "10.0.0.1"},
		{IP: "10.0.0.1", Interception: discovery.InterceptionRedirect, RouteDelta: true, SelfDiscovery: true},
		{IP: "10.0.0.7", DNSCapture: true},
		{IP: "10.0.0.9", Type: discovery.Router, Namespace: "edge", Labels: map[string]string{"istio": "gateway"}},
		{IP: "10.0.0.8", Type: discovery.Proxyless},
	} {
		without, with := plain.Join(n.Proxy(t)), stamped.Join(n.Proxy(t))
		t.Cleanup(without.Close)
		t.Cleanup(with.Close)
		without.Follow()
		with.Follow()
		want, err := with.Walked()
		if err != nil {
			t.Fatal(err)
		}
		expect := with.Versions()
		for name := range want {
			if want[name] != expect[name] {
				t.Errorf("%s: a walk makes another version", name)
			}
		}
		for _, served := range catalogue.Types() {
			before, after := without.Set(served.Name), with.Set(served.Name)
			if !slices.Equal(slices.Collect(before.Keys()), slices.Collect(after.Keys())) {
				t.Errorf("%s of a %s: the patch changed the names", served.Name, n.Type)
			}
			for name, r := range after.All() {
				if stamps := xdstest.Stamps(r.Body); stamps != 1+len(r.Parts) {
					t.Errorf("%s of a %s: %s with %d parts has %d stamps", served.Name, n.Type, name, len(r.Parts), stamps)
				}
				if old := before.Value(name); !slices.Equal(old.Needs, r.Needs) || len(r.Parts) == 0 && !proto.Equal(unstamped(t, r), unstamped(t, old)) {
					t.Errorf("%s of a %s: %s is %v, and without patches %v", served.Name, n.Type, name, r, old)
				}
				parts += len(r.Parts)
			}
			kind := ""
			if n.Type == discovery.Proxyless {
				kind = " proxyless"
			}
			if after.Len() > 0 {
				seen[served.Name+kind] = true
			}
			inbound := served.Own(n.Proxy(t))
			if inbound == nil {
				continue
			}
			for _, own := range w.Build(n, inbound) {
				if after.Value(own.Name) == nil {
					t.Errorf("%s: no %s", served.Name, own.Name)
				}
				seen[served.Name+" inbound"] = true
			}
		}
	}
	for _, served := range catalogue.Types() {
		for name := range generatorsIn(served) {
			if served.Needed {
				continue // a proxy has what its resources need, and these need nothing
			}
			if !seen[name] {
				t.Errorf("%s made nothing: does this test still test it?", name)
			}
		}
	}
	if parts == 0 {
		t.Error("no route configuration carries virtual hosts")
	}
}

// unstamped returns the message of a resource without its stamp.
func unstamped(t *testing.T, r *resource.Resource) proto.Message {
	t.Helper()
	message, err := r.Body.UnmarshalNew()
	if err != nil {
		t.Fatal(err)
	}
	message.ProtoReflect().SetUnknown(nil)
	return message
}

// letters is a generator of the resources "a" and "b".
type letters struct{}

func (letters) TypeURL() string { return "letters" }

func (letters) Affected(*mesh.View, mesh.Delta) iter.Seq[string] {
	return slices.Values([]string{"a", "b"})
}

func (letters) Build(_ *mesh.View, name string) (proto.Message, []resource.Need, error) {
	if name != "a" && name != "b" {
		return nil, nil, nil
	}
	return wrapperspb.String(name), nil, nil
}

// revision is a patch that removes "b", adds "c" and underlines the rest.
type revision struct{}

func (revision) Affected(*mesh.View, mesh.Delta) iter.Seq[string] {
	return slices.Values([]string{"c"})
}

func (revision) Apply(_ *mesh.View, name string, message proto.Message, needs []resource.Need) (proto.Message, []resource.Need, error) {
	switch {
	case name == "b":
		return nil, nil, nil
	case name == "c":
		message = wrapperspb.String(name)
	case message == nil:
		return nil, nil, nil
	}
	needs = append(slices.Clone(needs), resource.Need{TypeURL: "ink", Name: name, Kind: resource.Once})
	return wrapperspb.String("_" + message.(*wrapperspb.StringValue).GetValue()), needs, nil
}

// TestPatchesOfInboundAddNothing: patches edit and remove what any generator of a type
// makes, but add only resources of a class.
func TestPatchesOfInboundAddNothing(t *testing.T) {
	t.Parallel()
	v := xdstest.NewWorld(t).View(xdstest.Node{})
	patched := generate.ResourceType{Name: "letters", Generator: letters{}, Inbound: letters{}, Proxyless: letters{}}.Patched(revision{}, revision{})
	for name, want := range map[string]string{"letters": "a=__a c=_c", "letters inbound": "a=__a", "letters proxyless": "a=__a c=_c"} {
		var got []string
		g := generatorsIn(patched)[name]
		names := append(slices.Collect(g.Affected(v, mesh.Diff(nil, nil))), "c", "d")
		slices.Sort(names)
		for _, n := range slices.Compact(names) {
			r, err := generate.Build(g, v, n)
			if err != nil {
				t.Fatal(err)
			}
			if r == nil {
				continue
			}
			text := &wrapperspb.StringValue{}
			if err := r.Body.UnmarshalTo(text); err != nil {
				t.Fatal(err)
			}
			got = append(got, n+"="+text.GetValue())
			if len(r.Needs) == 0 || r.Needs[0] != (resource.Need{TypeURL: "ink", Name: n, Kind: resource.Once}) {
				t.Errorf("%s: %s needs %v", name, n, r.Needs)
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %v, want %s", name, got, want)
		}
	}
}
