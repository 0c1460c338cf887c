package cache

import (
	"slices"
	"time"

	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/health"
	"github.com/portolan-mesh/portolan/storage/plan"
)

// After returns the snapshot as the operations would leave it, applied as one at the
// next revision. It does not check versions. New objects get the creation time that the
// store would give them, and the given domain. An object of the store keeps its place
// among the objects of other sources. A new object goes before them, because a store
// refuses to create an object whose key another source wins.
func (s *Snapshot) After(ops []storage.Op, domain string) *Snapshot {
	content, now := s.Content(), time.Now()
	for _, op := range ops {
		path := op.Target().Path()
		all := content.all(path)
		at := slices.IndexFunc(all, func(o *config.Config) bool { return o.Source == "" })
		beside := slices.DeleteFunc(slices.Clone(all), func(o *config.Config) bool { return o.Source == "" })
		content.Shadows = content.Shadows.Delete(path)
		if op.Config == nil {
			content.Configs = content.Configs.Delete(path)
			if len(beside) > 0 {
				content.Configs = content.Configs.Set(path, beside[0])
			}
			content.shadow(path, beside)
			continue
		}
		object := *op.Config
		object.CreationTimestamp, object.Domain = plan.Created(op, now), domain
		if at >= 0 {
			object.CreationTimestamp, object.UID = all[at].CreationTimestamp, all[at].UID
		}
		content.takeHealth(op, &object)
		all = slices.Insert(beside, max(at, 0), &object)
		content.Configs = content.Configs.Set(path, all[0])
		content.shadow(path, all)
	}
	return s.Next(s.Revision()+1, content)
}

// takeHealth sets the health that a restored object comes with, unless it has a report.
func (c *Content) takeHealth(op storage.Op, object *config.Config) {
	at := health.Path(object.Namespace, object.Name)
	if op.Health == nil || object.UID != "" && c.Health.Value(at).Of(object.UID) {
		return
	}
	report := *op.Health
	report.Namespace, report.Name, report.UID = object.Namespace, object.Name, object.UID
	c.Health = c.Health.Set(at, &report)
}

// shadow records the objects of a key, if there are several.
func (c *Content) shadow(path string, objects []*config.Config) {
	if len(objects) > 1 {
		c.Shadows = c.Shadows.Set(path, &Shadow{objects})
	}
}
