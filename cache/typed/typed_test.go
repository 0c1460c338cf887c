package typed_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"
	security "istio.io/api/security/v1beta1"
	selector "istio.io/api/type/v1beta1"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/cache/typed"
	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/labels"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/storage/schema"
)

const root = "istio-system"

// object makes one that is age seconds younger than the epoch.
func object(kind config.GroupVersionKind, namespace, name string, age int64, spec proto.Message) *config.Config {
	return &config.Config{
		Meta: config.Meta{GroupVersionKind: kind, Namespace: namespace, Name: name, CreationTimestamp: time.Unix(age, 0)},
		Spec: spec,
	}
}

func names(objects []*config.Config) []string {
	out := []string{}
	for _, o := range objects {
		out = append(out, o.Namespace+"/"+o.Name)
	}
	return out
}

func workloads(match map[string]string) *selector.WorkloadSelector {
	if match == nil {
		return nil
	}
	return &selector.WorkloadSelector{MatchLabels: match}
}

func gateway(ns, name string, age int64, match map[string]string) *config.Config {
	return object(schema.Gateway, ns, name, age, &networking.Gateway{Selector: match})
}

func envoyFilter(ns, name string, age int64, priority int32, match map[string]string) *config.Config {
	spec := &networking.EnvoyFilter{Priority: priority}
	if match != nil {
		spec.WorkloadSelector = &networking.WorkloadSelector{Labels: match}
	}
	return object(schema.EnvoyFilter, ns, name, age, spec)
}

func sidecar(ns, name string, age int64, match map[string]string) *config.Config {
	spec := &networking.Sidecar{}
	if match != nil {
		spec.WorkloadSelector = &networking.WorkloadSelector{Labels: match}
	}
	return object(schema.Sidecar, ns, name, age, spec)
}

func peer(ns, name string, age int64, match map[string]string) *config.Config {
	return object(schema.PeerAuthentication, ns, name, age, &security.PeerAuthentication{Selector: workloads(match)})
}

func request(ns, name string, age int64, match map[string]string) *config.Config {
	return object(schema.RequestAuthentication, ns, name, age, &security.RequestAuthentication{Selector: workloads(match)})
}

func policy(ns, name string, age int64) *config.Config {
	return object(schema.AuthorizationPolicy, ns, name, age, &security.AuthorizationPolicy{})
}

func entry(ns, name string, age int64) *config.Config {
	return object(schema.ServiceEntry, ns, name, age, &networking.ServiceEntry{})
}

var (
	web   = map[string]string{"app": "web"}
	other = map[string]string{"app": "other"}
	both  = map[string]string{"app": "web", "tier": "front"}
)

func TestQueries(t *testing.T) {
	t.Parallel()
	workload := labels.Instance(both)
	sidecarOf := func(s *typed.IstioConfigStore) []string {
		if found := s.Sidecar("shop", workload); found != nil {
			return names([]*config.Config{found})
		}
		return []string{}
	}
	tests := []struct {
		name    string
		objects []*config.Config
		ask     func(*typed.IstioConfigStore) []string
		want    []string
	}{
		{
			"service entries of all namespaces, oldest first, then by name, then namespace",
			[]*config.Config{entry("b", "x", 2), entry("a", "y", 1), entry("a", "x", 2), entry("z", "a", 2)},
			func(s *typed.IstioConfigStore) []string { return names(s.ServiceEntries()) },
			[]string{"a/y", "z/a", "a/x", "b/x"},
		},
		{
			"gateways of any namespace whose selector is a subset",
			[]*config.Config{
				gateway("a", "all", 3, nil), gateway("b", "web", 2, web), gateway("b", "other", 1, other),
				gateway("c", "exact", 1, both), gateway("c", "more", 1, map[string]string{"app": "web", "zone": "1"}),
			},
			func(s *typed.IstioConfigStore) []string { return names(s.Gateways(workload)) },
			[]string{"c/exact", "b/web", "a/all"},
		},
		{
			"envoy filters by priority, then root first, then age",
			[]*config.Config{
				envoyFilter("shop", "first", 9, -1, nil), envoyFilter("shop", "old", 1, 0, web), envoyFilter(root, "young", 8, 0, nil),
				envoyFilter("shop", "middle", 2, 0, nil), envoyFilter("shop", "other", 1, 0, other), envoyFilter("elsewhere", "x", 1, 0, nil),
			},
			func(s *typed.IstioConfigStore) []string { return names(s.EnvoyFilters("shop", workload)) },
			[]string{"shop/first", root + "/young", "shop/old", "shop/middle"},
		},
		{
			"a sidecar with a selector goes before an older one without",
			[]*config.Config{sidecar("shop", "general", 1, nil), sidecar("shop", "young", 3, web), sidecar("shop", "old", 2, both), sidecar(root, "mesh", 1, nil)},
			sidecarOf, []string{"shop/old"},
		},
		{
			"the oldest sidecar without a selector goes before the root's",
			[]*config.Config{sidecar("shop", "general", 2, nil), sidecar("shop", "x", 3, nil), sidecar("shop", "other", 1, other), sidecar(root, "mesh", 1, nil)},
			sidecarOf, []string{"shop/general"},
		},
		{
			"a sidecar of the root namespace with a selector is not for the mesh",
			[]*config.Config{sidecar(root, "picky", 1, web), sidecar(root, "mesh", 2, nil)},
			sidecarOf, []string{root + "/mesh"},
		},
		{"no sidecar", []*config.Config{sidecar("elsewhere", "x", 1, nil)}, sidecarOf, []string{}},
		{
			"authorization policies of the namespace, then of the root",
			[]*config.Config{policy(root, "r", 0), policy("shop", "b", 2), policy("shop", "a", 3), policy("elsewhere", "x", 1)},
			func(s *typed.IstioConfigStore) []string { return names(s.AuthorizationPolicies("shop")) },
			[]string{"shop/b", "shop/a", root + "/r"},
		},
		{
			"authorization policies of the root namespace come once",
			[]*config.Config{policy(root, "r", 0)},
			func(s *typed.IstioConfigStore) []string { return names(s.AuthorizationPolicies(root)) },
			[]string{root + "/r"},
		},
		{
			"one peer authentication of each level, the oldest",
			[]*config.Config{
				peer("shop", "selected", 5, web), peer("shop", "selected-young", 6, web), peer("shop", "other", 1, other),
				peer("shop", "general", 3, nil), peer("shop", "general-old", 2, nil), peer(root, "mesh", 4, nil), peer(root, "picky", 1, web),
			},
			func(s *typed.IstioConfigStore) []string { return names(s.PeerAuthentications("shop", workload)) },
			[]string{"shop/selected", "shop/general-old", root + "/mesh"},
		},
		{
			"no peer authentication", nil,
			func(s *typed.IstioConfigStore) []string { return names(s.PeerAuthentications("shop", workload)) },
			[]string{},
		},
		{
			"all request authentications that select the workload",
			[]*config.Config{
				request("shop", "b", 2, web), request("shop", "a", 3, nil), request("shop", "other", 1, other),
				request(root, "mesh", 1, nil), request(root, "web", 2, web), request("elsewhere", "x", 1, nil),
			},
			func(s *typed.IstioConfigStore) []string { return names(s.RequestAuthentications("shop", workload)) },
			[]string{"shop/b", "shop/a", root + "/mesh", root + "/web"},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			var configs pmap.Map[*config.Config]
			for _, o := range test.objects {
				configs = configs.Set(o.Meta.Key().Path(), o)
			}
			snapshot := cache.NewSnapshot(1, configs)
			if d := cmp.Diff(test.want, test.ask(typed.Over(snapshot, root))); d != "" {
				t.Errorf("over a snapshot (-want +got):\n%s", d)
			}
			read, err := typed.Read(t.Context(), listed{snapshot: snapshot}, root)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(test.want, test.ask(read)); d != "" {
				t.Errorf("over a store (-want +got):\n%s", d)
			}
		})
	}
}

// listed is a store of which only List is asked.
type listed struct {
	storage.ConfigStore
	snapshot *cache.Snapshot
	err      error
}

func (l listed) List(_ context.Context, kind config.GroupVersionKind, namespace string) ([]*config.Config, error) {
	return slices.Collect(l.snapshot.List(kind, namespace)), l.err
}

func TestReadNamesTheKindThatFailed(t *testing.T) {
	t.Parallel()
	_, err := typed.Read(t.Context(), listed{err: storage.ErrUnavailable}, root)
	if err == nil || err.Error() != "list ServiceEntry: unavailable" {
		t.Errorf("got %v", err)
	}
}
