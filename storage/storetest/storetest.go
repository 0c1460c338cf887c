package storetest

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	networking "istio.io/api/networking/v1alpha3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// Run holds a store to the contract. open returns an empty store of the kinds
// of schema.Pilot, a new one at every call, whose clock is the real one and
// whose ledger reaches back at least a hundred revisions. A store that is a
// storage.Batcher is held to that contract, too.
func Run(t *testing.T, open func(t *testing.T) storage.ConfigStore) {
	groups := []struct {
		name  string
		tests []test
	}{
		{"Create", createTests},
		{"Update", updateTests},
		{"Delete", deleteTests},
		{"Read", readTests},
		{"Ledger", ledgerTests},
		{"Apply", applyTests},
		{"Concurrency", concurrencyTests},
		{"Lease", leaseTests},
	}
	for _, g := range groups {
		t.Run(g.name, func(t *testing.T) {
			t.Parallel()
			for _, c := range g.tests {
				t.Run(c.name, func(t *testing.T) {
					t.Parallel()
					c.run(&fixture{T: t, store: open(t)})
				})
			}
		})
	}
}

// test is one sentence of the contract.
type test struct {
	name string
	run  func(*fixture)
}

// fixture is a test with a store of its own. Its methods end the test if a step fails that
// must succeed.
type fixture struct {
	*testing.T
	store storage.ConfigStore
}

// entry returns a ServiceEntry as a user would write it.
func entry(namespace, name string, hosts ...string) *config.Config {
	if len(hosts) == 0 {
		hosts = []string{name + ".example"}
	}
	return &config.Config{
		Meta: config.Meta{
			GroupVersionKind: schema.ServiceEntry, Name: name, Namespace: namespace,
			Labels: map[string]string{"app": name}, Annotations: map[string]string{"team": "blue"},
		},
		Spec: &networking.ServiceEntry{Hosts: hosts, Resolution: networking.ServiceEntry_STATIC},
	}
}

func versioned(c *config.Config, version string) *config.Config {
	c = c.Clone()
	c.ResourceVersion = version
	return c
}

func (f *fixture) create(c *config.Config) (version string) {
	f.Helper()
	version, err := f.store.Create(f.Context(), c)
	if err != nil {
		f.Fatalf("create %s: %v", c.Key(), err)
	}
	return version
}

func (f *fixture) update(c *config.Config) (version string) {
	f.Helper()
	version, err := f.store.Update(f.Context(), c)
	if err != nil {
		f.Fatalf("update %s: %v", c.Key(), err)
	}
	return version
}

func (f *fixture) delete(c *config.Config, version string) (revision string) {
	f.Helper()
	revision, err := f.store.Delete(f.Context(), c.GroupVersionKind, c.Name, c.Namespace, version)
	if err != nil {
		f.Fatalf("delete %s: %v", c.Key(), err)
	}
	return revision
}

func (f *fixture) get(c *config.Config) *config.Config {
	f.Helper()
	got, err := f.store.Get(f.Context(), c.GroupVersionKind, c.Name, c.Namespace)
	if err != nil {
		f.Fatalf("get %s: %v", c.Key(), err)
	}
	return got
}

// version reads from the store, so that it sees its newest state, and returns its version.
func (f *fixture) version() string {
	f.Helper()
	f.list(schema.Sidecar, "")
	return f.store.Version()
}

func (f *fixture) list(kind config.GroupVersionKind, namespace string) (paths []string) {
	f.Helper()
	objects, err := f.store.List(f.Context(), kind, namespace)
	if err != nil {
		f.Fatalf("list %s in %q: %v", kind, namespace, err)
	}
	for _, o := range objects {
		paths = append(paths, o.Namespace+"/"+o.Name)
	}
	return paths
}

// wantAbsent checks that an object does not exist.
func (f *fixture) wantAbsent(c *config.Config) {
	f.Helper()
	if got, err := f.store.Get(f.Context(), c.GroupVersionKind, c.Name, c.Namespace); !errors.Is(err, storage.ErrNotFound) {
		f.Errorf("get %s = %v, %v, want ErrNotFound", c.Key(), got, err)
	}
}

// wantContent checks the part of a stored object that a user wrote.
func (f *fixture) wantContent(want *config.Config) {
	f.Helper()
	got := f.get(want)
	if !config.SameContent(want, got) {
		f.Errorf("%s (-want +got):\n%s", want.Key(), cmp.Diff(want, got, protocmp.Transform()))
	}
}

// wantError checks the class of an error, and that its text has names.
func (f *fixture) wantError(err, class error, names ...string) {
	f.Helper()
	if !errors.Is(err, class) {
		f.Fatalf("error is %v, want %v", err, class)
	}
	for _, name := range names {
		if !strings.Contains(err.Error(), name) {
			f.Errorf("error %q does not name %q", err, name)
		}
	}
}

// wantConflict checks that an error is a conflict that names both versions.
func (f *fixture) wantConflict(err error, key config.Key, expected, actual string) {
	f.Helper()
	f.wantError(err, storage.ErrConflict, expected, actual)
	conflict := (*storage.ConflictError)(nil)
	if !errors.As(err, &conflict) {
		f.Fatalf("error is %T, want a *storage.ConflictError in it", err)
	}
	if d := cmp.Diff(&storage.ConflictError{Key: key, Expected: expected, Actual: actual}, conflict); d != "" {
		f.Errorf("conflict (-want +got):\n%s", d)
	}
}

// unchanged checks that do, which fails, leaves the store at its version.
func (f *fixture) unchanged(do func()) {
	f.Helper()
	before := f.version()
	do()
	if after := f.version(); after != before {
		f.Errorf("the store went from version %s to %s", before, after)
	}
}

// invalid returns objects that no store may accept.
func invalid() map[string]*config.Config {
	change := func(f func(*config.Config)) *config.Config {
		c := entry("shop", "a")
		f(c)
		return c
	}
	return map[string]*config.Config{
		"unknown kind":      change(func(c *config.Config) { c.Kind = "Teapot" }),
		"unknown group":     change(func(c *config.Config) { c.Group = "example.com" }),
		"unserved version":  change(func(c *config.Config) { c.Version = "v9" }),
		"no name":           change(func(c *config.Config) { c.Name = "" }),
		"name with a slash": change(func(c *config.Config) { c.Name = "a/b" }),
		"name of dots":      change(func(c *config.Config) { c.Name = ".." }),
		"name not text":     change(func(c *config.Config) { c.Name = "\xff" }),
		"no namespace":      change(func(c *config.Config) { c.Namespace = "" }),
		"namespace _":       change(func(c *config.Config) { c.Namespace = "_" }),
		"no spec":           change(func(c *config.Config) { c.Spec = nil }),
		"nil spec":          change(func(c *config.Config) { c.Spec = (*networking.ServiceEntry)(nil) }),
		"spec of a sidecar": change(func(c *config.Config) { c.Spec = &networking.Sidecar{} }),
		"label not text":    change(func(c *config.Config) { c.Labels = map[string]string{"a": "\xff"} }),
		"owner not text":    change(func(c *config.Config) { c.OwnerReferences = []metav1.OwnerReference{{Name: "\xff"}} }),
		"host not text":     change(func(c *config.Config) { c.Spec.(*networking.ServiceEntry).Hosts[0] = "\xff" }),
		"nested too deep":   filter("value", nested(3400)),
		"not a number":      filter("value", structpb.NewNumberValue(math.NaN())),
		"infinite":          filter("value", structpb.NewNumberValue(math.Inf(1))),
		"value of nothing":  filter("value", &structpb.Value{}),
		"key not text":      filter("\xff", structpb.NewNullValue()),
		"time out of range": {
			Meta: config.Meta{GroupVersionKind: schema.VirtualService, Namespace: "shop", Name: "a"},
			Spec: &networking.VirtualService{Http: []*networking.HTTPRoute{{Timeout: &durationpb.Duration{Seconds: math.MaxInt64}}}},
		},
	}
}

// filter returns an EnvoyFilter whose patch has a value.
func filter(key string, value *structpb.Value) *config.Config {
	return &config.Config{
		Meta: config.Meta{GroupVersionKind: schema.EnvoyFilter, Namespace: "shop", Name: "a"},
		Spec: &networking.EnvoyFilter{ConfigPatches: []*networking.EnvoyFilter_EnvoyConfigObjectPatch{{
			Patch: &networking.EnvoyFilter_Patch{Value: &structpb.Struct{Fields: map[string]*structpb.Value{key: value}}},
		}}},
	}
}

// nested returns mappings nested in each other.
func nested(depth int) *structpb.Value {
	value := structpb.NewNullValue()
	for range depth {
		value = structpb.NewStructValue(&structpb.Struct{Fields: map[string]*structpb.Value{"a": value}})
	}
	return value
}

// around checks that a time lies within this test, in whole seconds and UTC.
func around(t time.Time, began time.Time) error {
	switch {
	case t.Nanosecond() != 0:
		return fmt.Errorf("%v is not in whole seconds", t)
	case t.Location() != time.UTC:
		return fmt.Errorf("%v is not in UTC", t)
	case t.Before(began.Truncate(time.Second)) || t.After(time.Now()):
		return fmt.Errorf("%v is not between %v and now", t, began)
	}
	return nil
}
