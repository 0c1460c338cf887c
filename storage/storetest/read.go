package storetest

import (
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
)

var teapot = config.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Teapot"}

var readTests = []test{
	{"Get of an object that does not exist is ErrNotFound", func(f *fixture) {
		f.create(entry("shop", "a"))
		f.wantAbsent(entry("shop", "b"))
		f.wantAbsent(entry("shop-b", "a"))
		_, err := f.store.Get(f.Context(), schema.Sidecar, "a", "shop")
		f.wantError(err, storage.ErrNotFound, "sidecar/shop/a")
	}},
	{"Get of an unknown kind or version is ErrInvalid", func(f *fixture) {
		_, err := f.store.Get(f.Context(), teapot, "a", "shop")
		f.wantError(err, storage.ErrInvalid, "Teapot")
		v9 := schema.ServiceEntry
		v9.Version = "v9"
		_, err = f.store.Get(f.Context(), v9, "a", "shop")
		f.wantError(err, storage.ErrInvalid, "v9")
	}},
	{"List of an unknown kind is ErrInvalid", func(f *fixture) {
		_, err := f.store.List(f.Context(), teapot, "")
		f.wantError(err, storage.ErrInvalid, "Teapot")
	}},
	{"List of nothing is empty", func(f *fixture) {
		if got := f.list(schema.ServiceEntry, ""); len(got) != 0 {
			f.Errorf("got %v", got)
		}
		if got := f.list(schema.ServiceEntry, "shop"); len(got) != 0 {
			f.Errorf("got %v", got)
		}
	}},
	{"List is in the order of namespaces, then names", func(f *fixture) {
		for _, path := range []string{"shop/b", "shop-b/a", "shop/a", "bank/z", "shop.c/a", "shop/a-b", "shop1/x"} {
			namespace, name, _ := strings.Cut(path, "/")
			f.create(entry(namespace, name))
		}
		want := []string{"bank/z", "shop/a", "shop/a-b", "shop/b", "shop-b/a", "shop.c/a", "shop1/x"}
		if d := cmp.Diff(want, f.list(schema.ServiceEntry, "")); d != "" {
			f.Errorf("order (-want +got):\n%s", d)
		}
	}},
	{"List of a namespace has its objects alone", func(f *fixture) {
		f.create(entry("shop", "b"))
		f.create(entry("shop", "a"))
		f.create(entry("shop-b", "c"))
		f.create(entry("sho", "d"))
		if d := cmp.Diff([]string{"shop/a", "shop/b"}, f.list(schema.ServiceEntry, "shop")); d != "" {
			f.Errorf("objects (-want +got):\n%s", d)
		}
	}},
	{"List of a kind has its objects alone, whatever version is named", func(f *fixture) {
		f.create(entry("shop", "a"))
		f.create(&config.Config{
			Meta: config.Meta{GroupVersionKind: schema.Sidecar, Namespace: "shop", Name: "s"},
			Spec: &networking.Sidecar{},
		})
		f.create(&config.Config{
			Meta: config.Meta{GroupVersionKind: schema.WorkloadEntry, Namespace: "shop", Name: "w"},
			Spec: &networking.WorkloadEntry{Address: "10.0.0.1"},
		})
		for _, version := range []string{"v1", "v1beta1", "v1alpha3"} {
			kind := schema.ServiceEntry
			kind.Version = version
			if d := cmp.Diff([]string{"shop/a"}, f.list(kind, "")); d != "" {
				f.Errorf("%s (-want +got):\n%s", version, d)
			}
		}
	}},
	{"List returns what Get returns", func(f *fixture) {
		f.create(entry("shop", "a"))
		f.create(entry("shop", "b"))
		f.update(entry("shop", "a", "2.example"))
		objects, err := f.store.List(f.Context(), schema.ServiceEntry, "")
		if err != nil {
			f.Fatal(err)
		}
		for _, o := range objects {
			got := f.get(o)
			if !config.SameContent(got, o) || got.ResourceVersion != o.ResourceVersion || got.UID != o.UID ||
				got.Generation != o.Generation || !got.CreationTimestamp.Equal(o.CreationTimestamp) {
				f.Errorf("Get %+v, List %+v", got, o)
			}
		}
	}},
	{"Schemas name the kinds served", func(f *fixture) {
		for _, k := range f.store.Schemas().All() {
			f.list(k.GroupVersionKind, "")
		}
		if f.store.Schemas().Kind(schema.ServiceEntry) == nil {
			f.Error("ServiceEntry is not among them")
		}
	}},
}

var ledgerTests = []test{
	{"Version moves with every mutation", func(f *fixture) {
		seen := []string{f.version()}
		f.create(entry("shop", "a"))
		seen = append(seen, f.version())
		f.update(entry("shop", "a", "2.example"))
		seen = append(seen, f.version())
		f.delete(entry("shop", "a"), "")
		seen = append(seen, f.version())
		if d := slices.Compact(slices.Sorted(slices.Values(seen))); len(d) != len(seen) {
			f.Errorf("versions were %q", seen)
		}
	}},
	{"GetResourceAtVersion tells the version that an object had", func(f *fixture) {
		c := entry("shop", "a")
		empty := f.version()
		first := f.create(c)
		between := f.create(entry("shop", "b"))
		second := f.update(entry("shop", "a", "2.example"))
		gone := f.delete(c, "")
		for _, step := range []struct{ at, want string }{{first, first}, {between, first}, {second, second}} {
			got, err := f.store.GetResourceAtVersion(f.Context(), step.at, c.Key())
			if err != nil || got != step.want {
				f.Errorf("at version %s: %q, %v, want %q", step.at, got, err, step.want)
			}
		}
		for _, at := range []string{empty, gone} {
			_, err := f.store.GetResourceAtVersion(f.Context(), at, c.Key())
			f.wantError(err, storage.ErrNotFound, "serviceentry/shop/a", at)
		}
	}},
	{"GetResourceAtVersion accepts every served version of a kind", func(f *fixture) {
		c := entry("shop", "a")
		version := f.create(c)
		c.Version = "v1beta1"
		if got, err := f.store.GetResourceAtVersion(f.Context(), version, c.Key()); err != nil || got != version {
			f.Errorf("got %q, %v, want %q", got, err, version)
		}
	}},
	{"GetResourceAtVersion of what is no version is ErrInvalid", func(f *fixture) {
		version := f.create(entry("shop", "a"))
		for _, at := range []string{"", "0", "-1", "abc", version + "000"} {
			_, err := f.store.GetResourceAtVersion(f.Context(), at, entry("shop", "a").Key())
			f.wantError(err, storage.ErrInvalid)
		}
	}},
	{"GetLedger answers as GetResourceAtVersion does", func(f *fixture) {
		c := entry("shop", "a")
		version := f.create(c)
		if got, err := f.store.GetLedger().ResourceVersionAt(f.Context(), version, c.Key()); err != nil || got != version {
			f.Errorf("got %q, %v, want %q", got, err, version)
		}
	}},
}
