package xds

import (
	"sync"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/discovery/rows"
	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/host"
	"github.com/portolan-mesh/portolan/xds/mesh"
)

// commit is the inputs of one commit, with what derived them.
type commit struct {
	inputs     mesh.Inputs
	rows       rows.Table
	registries discovery.Fork // nil without Options.Registries

	once sync.Once
	push *mesh.PushContext // derived from the inputs when first asked for
}

// Moment is the mesh as of one commit, or as it would be: the context, and the forks of
// the registries that its services came from.
type Moment struct {
	Context    *mesh.PushContext
	Registries discovery.Fork
}

// Moment returns the moment of the last commit, published or not yet. It returns false before
// the first commit, and without Options.Registries.
func (s *DiscoveryServer) Moment() (Moment, bool) {
	c := s.committed.Load()
	if c == nil || c.registries == nil {
		return Moment{}, false
	}
	return s.momentOf(c), true
}

// momentOf shares the published context if that has the same inputs; else it derives the
// context once.
func (s *DiscoveryServer) momentOf(c *commit) Moment {
	c.once.Do(func() {
		if c.push = s.Context(); c.push == nil || c.push.Inputs() != c.inputs {
			c.push = c.push.Next(c.inputs)
		}
	})
	return Moment{c.push, c.registries}
}

// WouldBe returns the moment of the last commit, and the one that operations on its
// configuration would make. The forks of the registries derive its rows; nothing is
// published. WouldBe returns false before the first commit, and without Options.Registries.
// Its cost grows with the difference between the two, not with the mesh.
func (s *DiscoveryServer) WouldBe(ops []storage.Op) (is, would Moment, known bool) {
	c := s.committed.Load()
	if c == nil || c.registries == nil {
		return Moment{}, Moment{}, false
	}
	fork := updater{c.rows, func(string, int) {}}
	in := c.inputs
	in.Configs = c.inputs.Configs.After(ops, s.options.Mesh.Domain)
	registries := c.registries.Apply(c.inputs.Configs, in.Configs, &fork)
	in.Services, in.Endpoints = fork.rows.Services, fork.rows.Endpoints
	is = s.momentOf(c)
	return is, Moment{is.Context.Next(in), registries}, true
}

// ContextAfter returns the context as it would be after operations on the configuration, nil where
// WouldBe is false.
func (s *DiscoveryServer) ContextAfter(ops []storage.Op) *mesh.PushContext {
	_, would, _ := s.WouldBe(ops)
	return would.Context
}

var _ discovery.XDSUpdater = (*DiscoveryServer)(nil)

// updater collects the rows of registries, and counts their reasons for the next push. It
// implements discovery.XDSUpdater.
type updater struct {
	rows  rows.Table
	count func(reason string, n int)
}

// SvcUpdate implements discovery.XDSUpdater.
func (u *updater) SvcUpdate(shard discovery.ShardKey, hostname host.Name, namespace string, services []*discovery.Service) {
	u.rows.SetServices(shard, hostname, namespace, services)
	u.count(discovery.ReasonService, 1)
}

// EDSUpdate implements discovery.XDSUpdater.
func (u *updater) EDSUpdate(shard discovery.ShardKey, hostname host.Name, namespace string, endpoints []*discovery.Endpoint) {
	u.EDSCacheUpdate(shard, hostname, namespace, endpoints)
	u.count(discovery.ReasonEndpoint, 1)
}

// EDSCacheUpdate implements discovery.XDSUpdater.
func (u *updater) EDSCacheUpdate(shard discovery.ShardKey, hostname host.Name, namespace string, endpoints []*discovery.Endpoint) {
	u.rows.SetEndpoints(shard, hostname, namespace, endpoints)
}

// ConfigUpdate implements discovery.XDSUpdater. It only counts the reasons; Commit wakes
// the pusher.
func (u *updater) ConfigUpdate(r *discovery.PushRequest) {
	for reason, n := range r.Reason {
		u.count(reason, n)
	}
}

// ProxyUpdate implements discovery.XDSUpdater. It only counts a reason: the rows of
// instances say what changed for the proxy.
func (u *updater) ProxyUpdate(_, _ string) { u.count(discovery.ReasonProxy, 1) }

// Commit makes one Inputs of everything that a task of the worker changed, and wakes
// the pusher if something did change. It must be the last hook of the worker.
func (s *DiscoveryServer) Commit() {
	in := mesh.Inputs{
		Configs:  s.options.Configs.Handled(),
		Services: s.rows.Services, Endpoints: s.rows.Endpoints, MeshFile: s.options.Mesh,
	}
	if s.options.SealingKeys != nil {
		in.SealingKeys = s.options.SealingKeys()
	}
	if s.options.ClusterSecrets != nil {
		in.ClusterSecrets = s.options.ClusterSecrets()
	}
	if s.options.Modules != nil {
		in.Modules = s.options.Modules()
	}
	last, now := s.committed.Load(), &commit{inputs: in, rows: s.rows}
	if s.options.Registries != nil {
		now.registries = s.options.Registries()
	}
	s.committed.Store(now) // a registry may have learnt something without changing a row
	if last != nil && last.inputs == in {
		return
	}
	if last == nil || last.inputs.Configs != in.Configs {
		s.countReason(discovery.ReasonConfig, 1)
	}
	s.wake()
}
