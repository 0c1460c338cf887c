package export_test

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	mcp "istio.io/api/mcp/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"
	"pgregory.net/rapid"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/longtest"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/storage/schema/schematest"
	"github.com/portolan-mesh/portolan/xds/export"
	"github.com/portolan-mesh/portolan/xds/mesh"
)

const services = "networking.istio.io/v1/ServiceEntry"

func newExport(all bool) *export.Export {
	return export.New(export.Options{Schemas: schema.Pilot(), AllSources: all, Logger: slog.New(slog.DiscardHandler)})
}

// at returns a function that returns the context of a snapshot.
func at(configs *cache.Snapshot) func() *mesh.PushContext {
	push := mesh.New(mesh.Inputs{Configs: configs})
	return func() *mesh.PushContext { return push }
}

// entry is a ServiceEntry of the store or of another source.
func entry(name, source, version string) *config.Config {
	return &config.Config{
		Meta: config.Meta{
			GroupVersionKind: schema.ServiceEntry, Namespace: "shop", Name: name, Source: source, ResourceVersion: version,
			CreationTimestamp: time.Unix(1_700_000_000, 0).UTC(),
		},
		Spec: &networking.ServiceEntry{Hosts: []string{name + ".example"}},
	}
}

// names returns the names of a type's resources, with the versions of their objects.
func names(t interface{ Fatal(...any) }, m *export.Member, typeURL string) (out []string) {
	for name, r := range m.Resources(typeURL).All() {
		message := &mcp.Resource{}
		if err := r.Body.UnmarshalTo(message); err != nil {
			t.Fatal(err)
		}
		out = append(out, name+" "+message.GetMetadata().GetVersion())
	}
	return out
}

// TestAnObjectIsAResource: a resource has the metadata of Istio's protocol, and equal objects
// have equal bytes.
func TestAnObjectIsAResource(t *testing.T) {
	t.Parallel()
	object := entry("a", "", "7")
	object.Labels, object.Annotations = map[string]string{"a": "1", "b": "2", "c": "3"}, map[string]string{"d": "4", "e": "5"}
	r, err := export.Resource(object)
	if err != nil {
		t.Fatal(err)
	}
	message := &mcp.Resource{}
	if err := r.Body.UnmarshalTo(message); err != nil {
		t.Fatal(err)
	}
	m := message.GetMetadata()
	if r.Name != "shop/a" || m.GetName() != "shop/a" || m.GetVersion() != "7" || m.GetCreateTime().GetSeconds() != 1_700_000_000 {
		t.Errorf("%s: %v", r.Name, m)
	}
	spec, err := message.GetBody().UnmarshalNew()
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(object.Spec, spec, protocmp.Transform()); d != "" {
		t.Errorf("spec (-want +got):\n%s", d)
	}
	for range 20 {
		again, err := export.Resource(object.Clone())
		if err != nil || again.Version != r.Version {
			t.Fatalf("made again: %v, %v", again, err)
		}
	}
}

// TestAResourceNamesItsSource: the annotation of an object that is not the store's names its source,
// whatever the object itself says.
func TestAResourceNamesItsSource(t *testing.T) {
	t.Parallel()
	for source, want := range map[string]map[string]string{
		"":            {"d": "4"},
		"kube://east": {"d": "4", config.SourceAnnotation: "kube://east"},
	} {
		object := entry("a", source, "7")
		object.Annotations = map[string]string{"d": "4"}
		if source != "" {
			object.Annotations[config.SourceAnnotation] = "elsewhere"
		}
		before := maps.Clone(object.Annotations)
		r, err := export.Resource(object)
		if err != nil {
			t.Fatal(err)
		}
		message := &mcp.Resource{}
		if err := r.Body.UnmarshalTo(message); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, message.GetMetadata().GetAnnotations()); d != "" {
			t.Errorf("%q: annotations (-want +got):\n%s", source, d)
		}
		if !maps.Equal(object.Annotations, before) {
			t.Errorf("%q: the object is modified", source)
		}
	}
}

// TestWhatIsExported: all kinds of Istio in all their versions; no internal kinds, and none
// whose specs are not protobuf messages.
func TestWhatIsExported(t *testing.T) {
	t.Parallel()
	secret := &schema.Schema{
		GroupVersionKind: config.GroupVersionKind{Group: "example.io", Version: "v1", Kind: "Hidden"}, Versions: []string{"v1"},
		Codec: config.Protobuf[networking.ServiceEntry](), Internal: true,
	}
	kinds := schema.NewSet(append(schematest.Kinds().All(), secret)...)
	var want, got []string
	for _, s := range schema.Pilot().All() {
		if _, isMessage := s.Codec.New().(proto.Message); s.Internal || !isMessage {
			continue
		}
		for _, version := range s.Versions {
			want = append(want, s.Group+"/"+version+"/"+s.Kind)
		}
	}
	e := export.New(export.Options{Schemas: kinds, Logger: slog.New(slog.DiscardHandler)})
	for _, typ := range e.Types() {
		got = append(got, typ.URL)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("types (-want +got):\n%s", d)
	}
	hidden := entry("a", "", "1")
	hidden.GroupVersionKind = secret.GroupVersionKind
	m := e.Join()
	defer m.Close()
	configs := pmap.Map[*config.Config]{}
	m.Advance(at(cache.NewSnapshot(1, configs)))
	m.Advance(at(cache.NewSnapshot(2, configs.Set(hidden.Key().Path(), hidden))))
	if got := names(t, m, "example.io/v1/Hidden"); len(got) > 0 {
		t.Errorf("an internal object is exported: %v", got)
	}
}

// TestWhichSourcesAreExported: either the store's objects, even if another source shadows them,
// or the effective objects of all sources.
func TestWhichSourcesAreExported(t *testing.T) {
	t.Parallel()
	var content cache.Content
	put := func(objects ...*config.Config) {
		path := objects[0].Key().Path()
		content.Configs = content.Configs.Set(path, objects[0])
		if len(objects) > 1 {
			content.Shadows = content.Shadows.Set(path, &cache.Shadow{Objects: objects})
		}
	}
	put(entry("a", "", "1"))
	put(entry("b", "/dir", "x"))
	put(entry("c", "", "2"), entry("c", "/dir", "y"))
	put(entry("d", "/dir", "z"), entry("d", "", "3"))
	put(entry("e", "/dir", "v"), entry("e", "/other", "w"))
	snapshot := (*cache.Snapshot)(nil).Next(3, content)
	for all, want := range map[bool][]string{
		false: {"shop/a 1", "shop/c 2", "shop/d 3"},
		true:  {"shop/a 1", "shop/b x", "shop/c 2", "shop/d z", "shop/e v"},
	} {
		m := newExport(all).Join()
		m.Advance(at(snapshot))
		if d := cmp.Diff(want, names(t, m, services)); d != "" {
			t.Errorf("all sources %t (-want +got):\n%s", all, d)
		}
	}
}

// TestChangesEqualAWholeWalk: after a random history of several sources, incremental resources
// equal those built from nothing.
func TestChangesEqualAWholeWalk(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		all := rapid.Bool().Draw(t, "all sources")
		m := newExport(all).Join()
		defer m.Close()
		var content cache.Content
		snapshot := (*cache.Snapshot)(nil).Next(1, content)
		m.Advance(at(snapshot))
		for step := range rapid.IntRange(1, 10).Draw(t, "steps") {
			name := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "name")
			path := entry(name, "", "").Key().Path()
			content.Configs, content.Shadows = content.Configs.Delete(path), content.Shadows.Delete(path)
			var objects []*config.Config
			for _, source := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"", "/dir"}), 0, 2, rapid.ID).Draw(t, "sources") {
				objects = append(objects, entry(name, source, fmt.Sprint(step)))
			}
			if len(objects) > 0 {
				content.Configs = content.Configs.Set(path, objects[0])
			}
			if len(objects) > 1 {
				content.Shadows = content.Shadows.Set(path, &cache.Shadow{Objects: objects})
			}
			snapshot = snapshot.Next(int64(step+2), content)
			if rapid.Bool().Draw(t, "skip") {
				continue
			}
			m.Advance(at(snapshot))
			whole := newExport(all).Join()
			whole.Advance(at(snapshot))
			for _, typ := range newExport(all).Types() {
				if d := cmp.Diff(names(t, whole, typ.URL), names(t, m, typ.URL)); d != "" {
					t.Fatalf("%s (-from nothing +followed):\n%s", typ.URL, d)
				}
			}
		}
	})
}

// TestNothingIsHeldWithoutAClient: clients share resources, and the last one frees them.
func TestNothingIsHeldWithoutAClient(t *testing.T) {
	t.Parallel()
	e, newest := newExport(false), at(cache.NewSnapshot(1, objects(1)))
	first, second := e.Join(), e.Join()
	first.Advance(newest)
	second.Advance(newest)
	if first.Resources(services) != second.Resources(services) || first.Resources(services).Len() != 1 {
		t.Error("two clients have resources of their own")
	}
	first.Close()
	second.Close()
	if e.Held() {
		t.Error("resources are held for nobody")
	}
}

func objects(n int) pmap.Map[*config.Config] {
	var all []*config.Config
	for i := range n {
		all = append(all, entry(fmt.Sprintf("s%05d", i), "", "1"))
	}
	return pmap.FromSorted(func(yield func(string, *config.Config) bool) {
		for c := range slices.Values(all) {
			if !yield(c.Key().Path(), c) {
				return
			}
		}
	})
}

// TestOneObjectCostsTheSameInAnyMesh: one change allocates as much among many objects as among
// 100.
func TestOneObjectCostsTheSameInAnyMesh(t *testing.T) {
	many := longtest.Histories(2_000, 10_000)
	cost := func(n int) float64 {
		m, configs, version := newExport(false).Join(), objects(n), 1
		push := mesh.New(mesh.Inputs{Configs: cache.NewSnapshot(1, configs)})
		newest := func() *mesh.PushContext { return push }
		m.Advance(newest)
		return testing.AllocsPerRun(50, func() {
			version++
			object := entry("s00007", "", fmt.Sprint(version))
			configs = configs.Set(object.Key().Path(), object)
			push = push.Next(mesh.Inputs{Configs: push.Inputs().Configs.Next(int64(version), cache.Content{Configs: configs})})
			m.Advance(newest)
		})
	}
	few, lots := cost(100), cost(many)
	t.Logf("%.0f allocations among 100 objects, %.0f among %d", few, lots, many)
	if lots > 2*few {
		t.Errorf("%.0f allocations among %d objects, %.0f among 100", lots, many, few)
	}
}
