package storetest

import (
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	metav1alpha1 "istio.io/api/meta/v1alpha1"

	networking "istio.io/api/networking/v1alpha3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
)

var createTests = []test{
	{"stores what the user wrote", func(f *fixture) {
		want := entry("shop", "a")
		f.create(want)
		got := f.get(want)
		if d := cmp.Diff(want.Labels, got.Labels); d != "" {
			f.Errorf("labels (-want +got):\n%s", d)
		}
		if d := cmp.Diff(want.Annotations, got.Annotations); d != "" {
			f.Errorf("annotations (-want +got):\n%s", d)
		}
		if d := cmp.Diff(want.Spec, got.Spec, protocmp.Transform()); d != "" {
			f.Errorf("spec (-want +got):\n%s", d)
		}
	}},
	{"returns the resource version of the object", func(f *fixture) {
		c := entry("shop", "a")
		version := f.create(c)
		if got := f.get(c).ResourceVersion; got != version || version == "" {
			f.Errorf("returned %q, the object has %q", version, got)
		}
		if got := f.store.Version(); got != version {
			f.Errorf("returned %q, the store is at %q", version, got)
		}
	}},
	{"of an object that exists is ErrExists and changes nothing", func(f *fixture) {
		c := entry("shop", "a")
		f.create(c)
		f.unchanged(func() {
			_, err := f.store.Create(f.Context(), entry("shop", "a", "other.example"))
			f.wantError(err, storage.ErrExists, "serviceentry/shop/a")
		})
		f.wantContent(c)
	}},
	{"of an object with a resource version is ErrInvalid", func(f *fixture) {
		f.unchanged(func() {
			_, err := f.store.Create(f.Context(), versioned(entry("shop", "a"), "1"))
			f.wantError(err, storage.ErrInvalid, "resource version")
		})
	}},
	{"of what may not be stored is ErrInvalid", func(f *fixture) {
		all := invalid()
		for _, name := range slices.Sorted(maps.Keys(all)) {
			if _, err := f.store.Create(f.Context(), all[name]); err == nil {
				f.Errorf("%s: no error", name)
			} else {
				f.wantError(err, storage.ErrInvalid)
			}
		}
	}},
	{"in a batch of what may not be stored changes nothing", func(f *fixture) {
		batcher, ok := f.store.(storage.Batcher)
		if !ok {
			return
		}
		f.create(filter("value", nested(30)))
		all := invalid()
		f.unchanged(func() {
			for _, name := range slices.Sorted(maps.Keys(all)) {
				_, _, err := batcher.Apply(f.Context(), []storage.Op{{Verb: storage.Put, Config: entry("shop", "b")}, {Verb: storage.Put, Config: all[name]}})
				f.wantError(err, storage.ErrInvalid)
			}
		})
	}},
	{"keeps owner references", func(f *fixture) {
		yes := true
		c := entry("shop", "a")
		c.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "A", Name: "b", UID: "c", Controller: &yes}, {Name: "d"}}
		version := f.create(c)
		f.wantContent(c)
		if again := f.update(c); again != version {
			f.Errorf("the same again is version %s, not %s", again, version)
		}
		c.OwnerReferences = c.OwnerReferences[1:]
		if changed := f.update(c); changed == version {
			f.Error("a change of the owners alone is none")
		}
		f.wantContent(c)
		if got := f.get(c); got.Generation != 1 {
			f.Errorf("the generation is %d, and the spec did not change", got.Generation)
		}
	}},
	{"keeps managed fields", func(f *fixture) {
		fields := func(manager string) []metav1.ManagedFieldsEntry {
			at := metav1.NewTime(time.Unix(1700000000, 0))
			return []metav1.ManagedFieldsEntry{{
				Manager: manager, Operation: metav1.ManagedFieldsOperationApply, APIVersion: "networking.istio.io/v1", Time: &at,
				FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(`{"f:spec":{}}`), Subresource: "status",
			}}
		}
		want := func(manager string) {
			f.Helper()
			got := f.get(entry("shop", "a")).ManagedFields
			if manager == "" && len(got) == 0 {
				return
			}
			if !config.SameManagedFields(got, fields(manager)) || !got[0].Time.Equal(fields("")[0].Time) {
				f.Errorf("managed fields %+v, want those of %s", got, manager)
			}
		}
		c := entry("shop", "a")
		c.ManagedFields = fields("kubectl")
		version := f.create(c)
		want("kubectl")
		c.ManagedFields = nil
		if again := f.update(c); again != version {
			f.Errorf("without managed fields the same is version %s, not %s", again, version)
		}
		later := metav1.NewTime(time.Unix(1800000000, 0))
		c.ManagedFields = fields("kubectl")
		c.ManagedFields[0].Time = &later
		if again := f.update(c); again != version {
			f.Errorf("a later time alone is version %s, not %s", again, version)
		}
		c.ManagedFields, c.Labels = nil, map[string]string{"a": "b"}
		f.update(c)
		want("kubectl")
		c.ManagedFields = fields("argo")
		if changed := f.update(c); changed == version {
			f.Error("other managers alone are no change")
		}
		want("argo")
		batcher, ok := f.store.(storage.Batcher)
		if !ok {
			return
		}
		c.ManagedFields = nil
		refusal := errors.New("another manager has it")
		op := storage.Op{Verb: storage.Put, Config: c, Managed: func(stored, written *config.Config) ([]metav1.ManagedFieldsEntry, error) {
			if stored.ManagedFields[0].Manager != "argo" || written.Labels["a"] != "b" {
				f.Errorf("stored %+v, written %+v", stored, written)
			}
			return nil, refusal
		}}
		f.unchanged(func() {
			if _, _, err := batcher.Apply(f.Context(), []storage.Op{op}); !errors.Is(err, refusal) {
				f.Errorf("the error is %v", err)
			}
		})
		op.Managed = func(_, _ *config.Config) ([]metav1.ManagedFieldsEntry, error) { return fields("flux"), nil }
		if _, _, err := batcher.Apply(f.Context(), []storage.Op{op}); err != nil {
			f.Error(err)
		}
		want("flux")
		op.Managed = func(_, _ *config.Config) ([]metav1.ManagedFieldsEntry, error) {
			return []metav1.ManagedFieldsEntry{}, nil
		}
		if _, _, err := batcher.Apply(f.Context(), []storage.Op{op}); err != nil {
			f.Error(err)
		}
		want("")
	}},
	{"of nil is ErrInvalid", func(f *fixture) {
		_, err := f.store.Create(f.Context(), nil)
		f.wantError(err, storage.ErrInvalid)
	}},
	{"sets creation time, generation and uid itself", func(f *fixture) {
		began := time.Now()
		c := entry("shop", "a")
		c.CreationTimestamp, c.Generation, c.UID = time.Unix(1, 0), 77, "mine"
		f.create(c)
		f.create(entry("shop", "b"))
		got := f.get(c)
		if err := around(got.CreationTimestamp, began); err != nil {
			f.Errorf("creation time: %v", err)
		}
		if got.Generation != 1 {
			f.Errorf("generation is %d, want 1", got.Generation)
		}
		if other := f.get(entry("shop", "b")).UID; got.UID == "" || got.UID == "mine" || got.UID == other {
			f.Errorf("uid is %q, that of another object %q", got.UID, other)
		}
	}},
	{"does not keep a status", func(f *fixture) {
		c := entry("shop", "a")
		c.Status = &metav1alpha1.IstioStatus{ObservedGeneration: 4}
		f.create(c)
		if got := f.get(c).Status; got != nil {
			f.Errorf("status is %v", got)
		}
	}},
	{"takes every served version of a kind for one object under the canonical one", func(f *fixture) {
		for _, version := range f.store.Schemas().Kind(schema.ServiceEntry).Versions {
			c := entry("shop", "by-"+version)
			c.Version = version
			f.create(c)
			got := f.get(entry("shop", "by-"+version))
			if d := cmp.Diff(schema.ServiceEntry, got.GroupVersionKind); d != "" {
				f.Errorf("written as %s (-want +got):\n%s", version, d)
			}
			if again := f.get(c); again.Key() != got.Key() {
				f.Errorf("read as %s it is %v", version, again.Key())
			}
		}
		_, err := f.store.Create(f.Context(), entry("shop", "by-v1beta1"))
		f.wantError(err, storage.ErrExists)
	}},
	{"keeps kinds, namespaces and names apart", func(f *fixture) {
		f.create(entry("shop", "a", "first.example"))
		f.create(entry("shop", "b", "second.example"))
		f.create(entry("shop-b", "a", "third.example"))
		f.create(&config.Config{
			Meta: config.Meta{GroupVersionKind: schema.Sidecar, Namespace: "shop", Name: "a"},
			Spec: &networking.Sidecar{},
		})
		f.wantContent(entry("shop", "a", "first.example"))
		f.wantContent(entry("shop-b", "a", "third.example"))
	}},
	{"neither keeps nor changes its argument", func(f *fixture) {
		c := entry("shop", "a")
		before := c.Clone()
		f.create(c)
		if d := cmp.Diff(before, c, protocmp.Transform()); d != "" {
			f.Errorf("argument (-before +after):\n%s", d)
		}
		c.Labels["app"] = "changed"
		c.Spec.(*networking.ServiceEntry).Hosts[0] = "changed.example"
		f.wantContent(before)
	}},
}
