package typed

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"

	networking "istio.io/api/networking/v1alpha3"
	security "istio.io/api/security/v1beta1"
	selector "istio.io/api/type/v1beta1"

	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/labels"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// Source lists the objects of a kind, of one namespace or of all (""). A
// *cache.Snapshot is one.
type Source interface {
	List(kind config.GroupVersionKind, namespace string) iter.Seq[*config.Config]
}

// IstioConfigStore answers from a Source. What it returns is the caller's, the
// objects in it are shared and read-only.
type IstioConfigStore struct {
	source Source
	root   string
}

// Over returns the queries over a source. Objects of the root namespace apply
// to every namespace, as each kind says.
func Over(source Source, rootNamespace string) *IstioConfigStore {
	return &IstioConfigStore{source: source, root: rootNamespace}
}

// Read lists the kinds of the queries from a store, one after the other, and
// returns the queries over what it read. Over a cache prefer Over with its
// Snapshot, which is of one revision and costs nothing.
func Read(ctx context.Context, store storage.ConfigStore, rootNamespace string) (*IstioConfigStore, error) {
	read := lists{}
	for _, kind := range []config.GroupVersionKind{
		schema.ServiceEntry, schema.Gateway, schema.EnvoyFilter, schema.Sidecar,
		schema.AuthorizationPolicy, schema.PeerAuthentication, schema.RequestAuthentication,
	} {
		objects, err := store.List(ctx, kind, "")
		if err != nil {
			return nil, fmt.Errorf("list %s: %w", kind.Kind, err)
		}
		read[kind] = objects
	}
	return Over(read, rootNamespace), nil
}

// lists is a Source of lists that were read.
type lists map[config.GroupVersionKind][]*config.Config

// List implements Source.
func (l lists) List(kind config.GroupVersionKind, namespace string) iter.Seq[*config.Config] {
	return func(yield func(*config.Config) bool) {
		for _, object := range l[kind] {
			if (namespace == "" || object.Namespace == namespace) && !yield(object) {
				return
			}
		}
	}
}

// ServiceEntries returns all of them.
func (s *IstioConfigStore) ServiceEntries() []*config.Config {
	return s.list(schema.ServiceEntry, "", everything)
}

// Gateways returns those, of any namespace, whose selector is a subset of the
// workload's labels. One without a selector applies to every gateway.
func (s *IstioConfigStore) Gateways(workload labels.Instance) []*config.Config {
	return s.list(schema.Gateway, "", func(c *config.Config) bool {
		return labels.Instance(spec[*networking.Gateway](c).GetSelector()).SubsetOf(workload)
	})
}

// EnvoyFilters returns those of the workload's namespace and of the root
// namespace that select it, in the order in which they are applied: by
// priority, those of the root namespace first, the oldest first.
func (s *IstioConfigStore) EnvoyFilters(namespace string, workload labels.Instance) []*config.Config {
	found := s.ownThenRoot(schema.EnvoyFilter, namespace, func(c *config.Config) bool {
		return labels.Instance(spec[*networking.EnvoyFilter](c).GetWorkloadSelector().GetLabels()).SubsetOf(workload)
	})
	slices.SortStableFunc(found, func(a, b *config.Config) int {
		return cmp.Or(
			cmp.Compare(spec[*networking.EnvoyFilter](a).GetPriority(), spec[*networking.EnvoyFilter](b).GetPriority()),
			s.compareRootFirst(a, b),
			config.Compare(a, b),
		)
	})
	return found
}

// Sidecar returns the one that applies to a sidecar proxy: the oldest of its
// namespace that selects it by labels, else the oldest there without a
// selector, else the oldest of the root namespace without one, else nil.
func (s *IstioConfigStore) Sidecar(namespace string, workload labels.Instance) *config.Config {
	selects := func(c *config.Config) bool {
		want := labels.Instance(sidecarSelector(c))
		return len(want) > 0 && want.SubsetOf(workload)
	}
	general := func(c *config.Config) bool { return len(sidecarSelector(c)) == 0 }
	if found := s.first(schema.Sidecar, namespace, selects); found != nil {
		return found
	}
	if found := s.first(schema.Sidecar, namespace, general); found != nil {
		return found
	}
	return s.first(schema.Sidecar, s.root, general)
}

func sidecarSelector(c *config.Config) map[string]string {
	return spec[*networking.Sidecar](c).GetWorkloadSelector().GetLabels()
}

// AuthorizationPolicies returns all of a namespace, then all of the root
// namespace. Which of them concern a workload is for their selectors, or their
// targets, to say.
func (s *IstioConfigStore) AuthorizationPolicies(namespace string) []*config.Config {
	return s.ownThenRoot(schema.AuthorizationPolicy, namespace, everything)
}

// PeerAuthentications returns those that apply to a workload, the most specific
// first, at most one of each level: selected by labels in its own namespace, of
// the namespace as a whole, of the mesh. On each level the oldest wins. One of
// the root namespace with a selector is no rule for the mesh: it concerns
// workloads of the root namespace only.
func (s *IstioConfigStore) PeerAuthentications(namespace string, workload labels.Instance) []*config.Config {
	selects := func(c *config.Config) bool {
		want := matchLabels(spec[*security.PeerAuthentication](c))
		return len(want) > 0 && want.SubsetOf(workload)
	}
	general := func(c *config.Config) bool { return len(matchLabels(spec[*security.PeerAuthentication](c))) == 0 }
	levels := []*config.Config{
		s.first(schema.PeerAuthentication, namespace, selects),
		s.first(schema.PeerAuthentication, namespace, general),
	}
	if namespace != s.root {
		levels = append(levels, s.first(schema.PeerAuthentication, s.root, general))
	}
	return slices.DeleteFunc(levels, func(c *config.Config) bool { return c == nil })
}

// RequestAuthentications returns those of the workload's namespace, then those
// of the root namespace, whose selector is a subset of the workload's labels.
// All of them apply together.
func (s *IstioConfigStore) RequestAuthentications(namespace string, workload labels.Instance) []*config.Config {
	return s.ownThenRoot(schema.RequestAuthentication, namespace, func(c *config.Config) bool {
		return matchLabels(spec[*security.RequestAuthentication](c)).SubsetOf(workload)
	})
}

func everything(*config.Config) bool { return true }

// spec returns the message of an object, nil (whose getters work) where it is
// of another kind.
func spec[M any](c *config.Config) M {
	m, _ := c.Spec.(M)
	return m
}

func matchLabels(policy interface {
	GetSelector() *selector.WorkloadSelector
}) labels.Instance {
	return policy.GetSelector().GetMatchLabels()
}

func (s *IstioConfigStore) list(kind config.GroupVersionKind, namespace string, keep func(*config.Config) bool) []*config.Config {
	var found []*config.Config
	for c := range s.source.List(kind, namespace) {
		if keep(c) {
			found = append(found, c)
		}
	}
	slices.SortFunc(found, config.Compare)
	return found
}

// first returns the oldest, nil where there is none.
func (s *IstioConfigStore) first(kind config.GroupVersionKind, namespace string, keep func(*config.Config) bool) *config.Config {
	if found := s.list(kind, namespace, keep); len(found) > 0 {
		return found[0]
	}
	return nil
}

func (s *IstioConfigStore) ownThenRoot(kind config.GroupVersionKind, namespace string, keep func(*config.Config) bool) []*config.Config {
	found := s.list(kind, namespace, keep)
	if namespace != s.root {
		found = append(found, s.list(kind, s.root, keep)...)
	}
	return found
}

func (s *IstioConfigStore) compareRootFirst(a, b *config.Config) int {
	rank := func(c *config.Config) int {
		if c.Namespace == s.root {
			return 0
		}
		return 1
	}
	return cmp.Compare(rank(a), rank(b))
}
