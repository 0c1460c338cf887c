package aggregate

import (
	"cmp"
	"slices"
	"strings"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/health"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// mergeSnapshot costs as much as the difference from the member's last snapshot.
func (c *Cache) mergeSnapshot(m *member, s *cache.Snapshot) {
	from := m.snapshot
	m.snapshot = s
	if from.Configs() != s.Configs() {
		m.changed = c.o.Now()
	}
	if m.own {
		m.objects = s.Configs()
		if c.onlyStore() {
			c.configs, c.shadows, c.health = m.objects, pmap.Map[*cache.Shadow]{}, s.Health()
			return
		}
	}
	for change := range pmap.Diff(from.Configs(), s.Configs()) {
		if !m.own {
			m.put(change, c)
		}
		c.resolve(change.Key)
	}
	for change := range pmap.Diff(from.Health(), s.Health()) {
		r := cmp.Or(change.New, change.Old)
		c.resolveHealth(config.Key{Kind: schema.WorkloadEntry, Namespace: r.Namespace, Name: r.Name})
	}
}

// onlyStore says whether no source but the store has objects.
func (c *Cache) onlyStore() bool {
	for _, m := range c.members {
		if !m.own && m.objects.Len() > 0 {
			return false
		}
	}
	return true
}

// put applies a change of a source other than the store. It sets the Meta.Source of the
// object.
func (m *member) put(change pmap.Change[*config.Config], c *Cache) {
	object := change.New
	if object == nil || c.schemas.Kind(object.GroupVersionKind) == nil {
		m.objects = m.objects.Delete(change.Key)
		return
	}
	if object.Source != m.Name {
		named := *object
		named.Source = m.Name
		object = &named
	}
	m.objects = m.objects.Set(change.Key, object)
}

// resolve finds the object of a key that counts, and those that it shadows.
func (c *Cache) resolve(path string) {
	var all []*config.Config
	for _, m := range c.members {
		if object := m.objects.Value(path); object != nil {
			all = append(all, object)
		}
	}
	if len(all) == 0 {
		c.configs = c.configs.Delete(path)
	} else {
		c.configs = c.configs.Set(path, all[0])
	}
	if len(all) < 2 {
		c.shadows = c.shadows.Delete(path)
	} else if s := c.shadows.Value(path); s == nil || !slices.Equal(s.Objects, all) {
		c.shadows = c.shadows.Set(path, &cache.Shadow{Objects: all})
	}
	if strings.HasPrefix(path, workloads) {
		key, _ := config.KeyOfPath(path)
		c.resolveHealth(key)
	}
}

// workloads begins the paths of WorkloadEntries.
var workloads = config.KindPath(schema.WorkloadEntry)

// resolveHealth finds the report on a WorkloadEntry: that of the source whose object counts, otherwise
// the store's, which says of which object it is. Where that of the source cannot be read the store's
// counts, and tells that it cannot.
func (c *Cache) resolveHealth(of config.Key) {
	path, at := of.Path(), health.Path(of.Namespace, of.Name)
	report := c.store.snapshot.Health().Value(at)
	for _, m := range c.members {
		if m.objects.Value(path) != nil {
			report = withOdd(cmp.Or(m.snapshot.Health().Value(at), report), report)
			break
		}
	}
	if report == nil {
		c.health = c.health.Delete(at)
	} else {
		c.health = c.health.Set(at, report)
	}
}

// withOdd returns a report, or where that cannot be read the store's on the same object, with what is odd.
func withOdd(r, stored *health.Report) *health.Report {
	if r == nil || r.Odd == "" || !stored.Of(r.UID) {
		return r
	}
	out := *stored
	out.Odd = r.Odd
	return &out
}

// empty removes all objects of a member that is no longer one of c.members.
func (c *Cache) empty(m *member) {
	gone := m.objects
	m.objects, m.snapshot = pmap.Map[*config.Config]{}, nil
	for path := range gone.Keys() {
		c.resolve(path)
	}
}

// publish makes a snapshot of the merged content, unless a first start still waits. gap
// says that the store's revisions before this one are unknown.
func (c *Cache) publish(gap bool) {
	newest := c.Snapshot()
	if newest == nil && !c.complete(func(m *member) bool { return m.Behind }) {
		return
	}
	from := c.store.snapshot
	content := from.Content()
	content.Configs, content.Shadows, content.Health = c.configs, c.shadows, c.health
	next, publish := (*cache.Snapshot)(nil).Next(from.Revision(), content).InEpoch(from.Epoch()), c.Replace
	if newest != nil && !gap {
		if newest.Revision() == from.Revision() && newest.Content() == content {
			return
		}
		next, publish = newest.Next(from.Revision(), content), c.Publish
	}
	if c.o.Merged != nil {
		c.o.Merged(next)
	}
	if newest != nil || c.complete(func(*member) bool { return false }) {
		publish(next)
	}
}

// complete says whether the store was read, and so was every other source but some, unless it
// failed or took too long. Then the first snapshot may be made.
func (c *Cache) complete(but func(*member) bool) bool {
	for _, m := range c.members {
		if m.snapshot == nil && (m.own || !c.waited && m.failed == nil && !but(m)) {
			return false
		}
	}
	return true
}
