package routing_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	networking "istio.io/api/networking/v1alpha3"
	"sigs.k8s.io/yaml"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/xds/mesh/routing"
)

// virtualService makes a VirtualService with the name "namespace/name" and a spec in
// YAML.
func virtualService(t *testing.T, name, spec string) *routing.VirtualService {
	t.Helper()
	text, err := yaml.YAMLToJSON([]byte(spec))
	if err != nil {
		t.Fatal(err)
	}
	v := &networking.VirtualService{}
	if err := protojson.Unmarshal(text, v); err != nil {
		t.Fatal(err)
	}
	namespace, short, _ := strings.Cut(name, "/")
	return routing.New(&config.Config{
		Meta: config.Meta{GroupVersionKind: schema.VirtualService, Namespace: namespace, Name: short, Domain: "mesh.test"}, Spec: v,
	}, []string{"*"})
}

// merge merges a root in namespace shop with some delegates.
func merge(t *testing.T, root string, delegates map[string]string) *routing.VirtualService {
	t.Helper()
	all := map[string]*routing.VirtualService{}
	for name, spec := range delegates {
		vs := virtualService(t, name, spec)
		all[vs.Config.Key().Path()] = vs
	}
	before := virtualService(t, "shop/root", "{hosts: [a.test], http: ["+root+"]}")
	written := proto.CloneOf(before.Spec)
	merged := before.Merge(func(path string) *routing.VirtualService { return all[path] })
	if !proto.Equal(before.Spec, written) || !proto.Equal(merged.Written, written) {
		t.Errorf("merging changes what was written")
	}
	for name, spec := range delegates {
		if d := virtualService(t, name, spec); !proto.Equal(d.Spec, all[d.Config.Key().Path()].Spec) {
			t.Errorf("merging changes %s", name)
		}
	}
	return merged
}

// written lists where each route of a VirtualService, and each of its matches, was
// written.
func written(vs *routing.VirtualService) []string {
	var out []string
	for i, r := range vs.Spec.GetHttp() {
		o := vs.Origin(i)
		text := fmt.Sprintf("%s[%d] by [%d]", o.Of.Config.Name, o.Block, o.Root)
		for k := range r.GetMatch() {
			m := o.Match(k)
			text += fmt.Sprintf(" %d*%d", m.Of, m.Root)
		}
		out = append(out, text)
	}
	for _, c := range vs.Conflicts {
		out = append(out, fmt.Sprintf("%s[%d].match[%d].%s without [%d]", c.Of.Config.Name, c.Block, c.Match, c.Field, c.Root))
	}
	return out
}

func TestMergedRoutes(t *testing.T) {
	t.Parallel()
	const to = "route: [{destination: {host: web}}]"
	two := map[string]string{
		"shop/one": "{http: [{match: [{uri: {exact: /a}}, {uri: {exact: /b}}], " + to + "}, {" + to + "}]}",
		"edge/two": "{http: [{match: [{port: 80}], " + to + "}]}",
	}
	for _, tc := range []struct {
		name, root string
		delegates  map[string]string
		want       []string
	}{
		{"no delegate", "{" + to + "}", nil, []string{"root[0] by [0]"}},
		{"in the order of both", "{match: [{port: 1}], " + to + "}, {delegate: {name: one}}, {match: [{port: 2}, {port: 80}], delegate: {name: two, namespace: edge}}, {" + to + "}", two, []string{
			"root[0] by [0] 0*-1", "one[0] by [1] 0*-1 1*-1", "one[1] by [1]", "two[0] by [2] 0*1", "root[3] by [3]",
		}},
		{"every match with every match", "{match: [{port: 1}, {method: {exact: PUT}}], delegate: {name: one}}", two, []string{
			"one[0] by [0] 0*0 0*1 1*0 1*1", "one[1] by [0] -1*0 -1*1",
		}},
		{"one delegate twice", "{match: [{port: 1}], delegate: {name: two, namespace: edge}}, {delegate: {name: two, namespace: edge}}", two, []string{
			"two[0] by [1] 0*-1", "two[0].match[0].port without [0]",
		}},
		{"one that is not there, or in another namespace", "{delegate: {name: none}}, {delegate: {name: two}}, {" + to + "}", two, []string{"root[2] by [2]"}},
		{"one with hosts", "{delegate: {name: other}}", map[string]string{"shop/other": "{hosts: [b.test], http: [{" + to + "}]}"}, nil},
		{"one that is not exported", "{delegate: {name: d, namespace: edge}}, {delegate: {name: d}}", map[string]string{
			"edge/d": "{exportTo: [.], http: [{" + to + "}]}", "shop/d": "{exportTo: ['~'], http: [{" + to + "}]}"}, nil},
		{"one that is", "{delegate: {name: d, namespace: edge}}", map[string]string{"edge/d": "{exportTo: [shop], http: [{" + to + "}]}"}, []string{"d[0] by [0]"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tc.want, written(merge(t, tc.root, tc.delegates))); diff != "" {
				t.Errorf("routes (-want +got):\n%s", diff)
			}
		})
	}
}

// TestNamesOfADelegateAreItsOwn: short host and gateway names are completed in the
// namespace of the object that has them.
func TestNamesOfADelegateAreItsOwn(t *testing.T) {
	t.Parallel()
	vs := merge(t, "{match: [{gateways: [front, edge/back]}], delegate: {name: d, namespace: edge}, mirror: {host: copies}}", map[string]string{
		"edge/d": "{http: [{match: [{gateways: [back]}], route: [{destination: {host: web}}]}]}",
	})
	if got := fmt.Sprint(slices.Sorted(maps.Keys(vs.Imports())), vs.Spec.GetHttp()[0].GetMatch()[0].GetGateways(), vs.Gateways); got != "[copies.shop.svc.mesh.test web.edge.svc.mesh.test] [edge/back] [mesh]" {
		t.Error(got)
	}
	if d := vs.Delegates[0]; d.Gateways != nil || d.Imports() != nil || d.SourceSelectors() != nil || d.DelegatePaths() != nil {
		t.Errorf("a delegate is bound to %v", d.Gateways)
	}
}

// TestMatchesThatGoTogether: which matches of a delegate are compatible with that of its
// root.
func TestMatchesThatGoTogether(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ root, leaf, excludes string }{
		{"{}", "{uri: {prefix: /a}}", ""},
		{"{uri: {prefix: /a}}", "{}", ""},
		{"{uri: {prefix: /a}}", "{uri: {prefix: /a/b}}", ""},
		{"{uri: {prefix: /a}}", "{uri: {prefix: /ab}}", ""},
		{"{uri: {prefix: /a}}", "{uri: {exact: /a}}", ""},
		{"{uri: {prefix: /a}}", "{uri: {exact: /b}}", "uri"},
		{"{uri: {prefix: /a/b}}", "{uri: {prefix: /a}}", "uri"},
		{"{uri: {exact: /a}}", "{uri: {exact: /a}}", ""},
		{"{uri: {exact: /a}}", "{uri: {exact: /b}}", "uri"},
		{"{uri: {exact: /a}}", "{uri: {prefix: /a}}", "uri"},
		{"{uri: {regex: /a}}", "{uri: {exact: /a}}", "uri"},
		{"{uri: {regex: /a}}", "{uri: {regex: /a}}", "uri"},
		{"{uri: {regex: /a}}", "{method: {exact: GET}}", ""},
		{"{method: {exact: GET}}", "{uri: {regex: /a}}", ""},
		{"{method: {exact: GET}}", "{method: {regex: 'G.*'}}", "method"},
		{"{scheme: {exact: http}}", "{scheme: {exact: https}}", "scheme"},
		{"{authority: {prefix: a}}", "{authority: {exact: b.test}}", "authority"},
		{"{headers: {x: {exact: a}}}", "{headers: {w: {exact: b}}}", ""},
		{"{headers: {x: {prefix: a}, w: {}}}", "{headers: {x: {exact: ab}}}", ""},
		{"{headers: {x: {exact: a}}}", "{headers: {x: {exact: b}}}", "headers[x]"},
		{"{headers: {x: {}}}", "{headers: {x: {exact: b}}}", "headers[x]"},
		{"{withoutHeaders: {x: {exact: a}}}", "{withoutHeaders: {x: {exact: b}}}", "withoutHeaders[x]"},
		{"{headers: {x: {exact: a}}}", "{withoutHeaders: {x: {exact: b}}}", ""},
		{"{queryParams: {x: {exact: a}}}", "{queryParams: {x: {exact: b}}}", "queryParams[x]"},
		{"{ignoreUriCase: true}", "{}", "ignoreUriCase"},
		{"{ignoreUriCase: true, uri: {prefix: /a}}", "{ignoreUriCase: true, uri: {prefix: /a/b}}", ""},
		{"{port: 80}", "{}", ""},
		{"{}", "{port: 80}", ""},
		{"{port: 80}", "{port: 81}", "port"},
		{"{sourceNamespace: shop}", "{}", "sourceNamespace"},
		{"{sourceNamespace: shop}", "{sourceNamespace: shop}", ""},
		{"{}", "{sourceNamespace: shop}", ""},
		{"{sourceLabels: {app: a}}", "{sourceLabels: {version: v1}}", ""},
		{"{sourceLabels: {app: a}}", "{sourceLabels: {app: b}}", "sourceLabels[app]"},
		{"{gateways: [a, b]}", "{gateways: [b]}", ""},
		{"{gateways: [a]}", "{gateways: [a, mesh]}", "gateways"},
		{"{gateways: [a]}", "{gateways: [b]}", "gateways"},
		{"{gateways: [a]}", "{}", ""},
		{"{}", "{gateways: [a]}", ""},
	} {
		vs := merge(t, "{match: ["+tc.root+"], delegate: {name: d}}", map[string]string{
			"shop/d": "{http: [{match: [" + tc.leaf + "], directResponse: {status: 200}}]}",
		})
		got := ""
		if len(vs.Conflicts) > 0 {
			got = vs.Conflicts[0].Field
		}
		if got != tc.excludes || (got == "") != (len(vs.Spec.GetHttp()) == 1) {
			t.Errorf("root %s, delegate %s: excluded by %q, want %q; %d routes", tc.root, tc.leaf, got, tc.excludes, len(vs.Spec.GetHttp()))
		}
	}
}

func TestMergedMatch(t *testing.T) {
	t.Parallel()
	vs := merge(t, `{name: root, delegate: {name: d}, match: [{name: all, uri: {prefix: /a}, headers: {x: {exact: a}, w: {prefix: b}}, withoutHeaders: {v: {}}, queryParams: {q: {exact: a}},
		sourceLabels: {app: a}, sourceNamespace: far, gateways: [one, two], port: 80, statPrefix: s, scheme: {exact: http}, method: {exact: GET}, authority: {exact: a.test}}]}`,
		map[string]string{"shop/d": `{http: [{name: leaf, match: [{name: some, uri: {exact: /a/b}, headers: {w: {exact: bc}, z: {}}, withoutHeaders: {w: {exact: a}}, queryParams: {p: {}},
		sourceLabels: {app: a, version: v1}, sourceNamespace: far, gateways: [two]}, {sourceNamespace: far}], directResponse: {status: 200}}]}`})
	want := virtualService(t, "shop/x", `{http: [{name: root-leaf, directResponse: {status: 200}, match: [
		{name: all-some, uri: {exact: /a/b}, headers: {x: {exact: a}, w: {exact: bc}, z: {}}, withoutHeaders: {v: {}, w: {exact: a}}, queryParams: {q: {exact: a}, p: {}},
		 sourceLabels: {app: a, version: v1}, sourceNamespace: far, gateways: [two], port: 80, statPrefix: s, scheme: {exact: http}, method: {exact: GET}, authority: {exact: a.test}},
		{name: all, uri: {prefix: /a}, headers: {x: {exact: a}, w: {prefix: b}}, withoutHeaders: {v: {}}, queryParams: {q: {exact: a}},
		 sourceLabels: {app: a}, sourceNamespace: far, gateways: [one, two], port: 80, statPrefix: s, scheme: {exact: http}, method: {exact: GET}, authority: {exact: a.test}}]}]}`)
	if diff := cmp.Diff(protojson.Format(want.Spec.GetHttp()[0]), protojson.Format(vs.Spec.GetHttp()[0])); diff != "" {
		t.Errorf("route (-want +got):\n%s", diff)
	}
}

// notInherited are the fields that a delegate's route does not inherit from the root: its
// action, and the fields that are merged.
var notInherited = []string{"name", "match", "route", "redirect", "directResponse", "delegate"}

// TestEveryFieldIsInherited sets each field of the delegating route, and of the
// delegate's route, by reflection, so that it covers new fields of the API.
func TestEveryFieldIsInherited(t *testing.T) {
	t.Parallel()
	fields := (&networking.HTTPRoute{}).ProtoReflect().Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		inherited := !slices.Contains(notInherited, f.JSONName())
		for _, own := range []bool{false, true} {
			root, leaf := &networking.HTTPRoute{Delegate: &networking.Delegate{Name: "d"}}, &networking.HTTPRoute{}
			if inherited {
				fill(root.ProtoReflect(), f, "root")
			}
			if own && f.JSONName() != "match" {
				fill(leaf.ProtoReflect(), f, "leaf")
			}
			meta := config.Meta{GroupVersionKind: schema.VirtualService, Namespace: "shop"}
			meta.Name = "d"
			d := routing.New(&config.Config{Meta: meta, Spec: &networking.VirtualService{Http: []*networking.HTTPRoute{leaf}}}, []string{"*"})
			meta.Name = "root"
			vs := routing.New(&config.Config{Meta: meta, Spec: &networking.VirtualService{Hosts: []string{"a.test"}, Http: []*networking.HTTPRoute{root}}}, []string{"*"})
			got := vs.Merge(func(string) *routing.VirtualService { return d }).Spec.GetHttp()[0]
			want := d.Spec.GetHttp()[0]
			if !own {
				want = vs.Written.GetHttp()[0]
			}
			if (own || inherited) && !got.ProtoReflect().Get(f).Equal(want.ProtoReflect().Get(f)) {
				t.Errorf("%s, set by the delegate: %v: got %v", f.JSONName(), own, got)
			}
		}
	}
}

// fill sets a field to a value that depends on a text, or is at least not empty.
func fill(m protoreflect.Message, f protoreflect.FieldDescriptor, text string) {
	switch {
	case f.IsList():
		list := m.Mutable(f).List()
		element := list.NewElement()
		fillMessage(element.Message(), text)
		list.Append(element)
	case f.Message() != nil:
		fillMessage(m.Mutable(f).Message(), text)
	case f.Kind() == protoreflect.StringKind:
		m.Set(f, protoreflect.ValueOfString(text))
	}
}

// fillMessage sets the first number or string in a message, or descends into its first
// message.
func fillMessage(m protoreflect.Message, text string) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		switch f := fields.Get(i); {
		case f.IsList() || f.IsMap():
		case f.Kind() == protoreflect.StringKind:
			m.Set(f, protoreflect.ValueOfString(text+".test"))
			return
		case f.Kind() == protoreflect.Int32Kind:
			m.Set(f, protoreflect.ValueOfInt32(int32(len(text)+int(text[0]))))
			return
		case f.Kind() == protoreflect.Int64Kind:
			m.Set(f, protoreflect.ValueOfInt64(int64(text[0])))
			return
		case f.Kind() == protoreflect.Uint32Kind:
			m.Set(f, protoreflect.ValueOfUint32(uint32(text[0])))
			return
		case f.Kind() == protoreflect.DoubleKind:
			m.Set(f, protoreflect.ValueOfFloat64(float64(text[0])))
			return
		case f.Message() != nil:
			fillMessage(m.Mutable(f).Message(), text)
			return
		}
	}
}
