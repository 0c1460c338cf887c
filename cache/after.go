package cache

import (
	"time"

	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/plan"
)

// After returns the snapshot as it would be after operations, applied as one at the next
// revision. It does not look at versions. New objects are as old as the store would make
// them, and the domain is theirs. An object of the store goes before those of other
// sources, since a store takes no write of a key that another source wins.
func (s *Snapshot) After(ops []storage.Op, domain string) *Snapshot {
	content, now := s.Content(), time.Now()
	for _, op := range ops {
		path := op.Target().Path()
		beside := besideStored(&content, path)
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
		if old := content.Configs.Value(path); old != nil && old.Source == "" {
			object.CreationTimestamp = old.CreationTimestamp
		}
		content.Configs = content.Configs.Set(path, &object)
		content.shadow(path, append([]*config.Config{&object}, beside...))
	}
	return s.Next(s.Revision()+1, content)
}

// besideStored returns the objects of a key that other sources than the store have.
func besideStored(c *Content, path string) []*config.Config {
	objects := []*config.Config{c.Configs.Value(path)}
	if s := c.Shadows.Value(path); s != nil {
		objects = s.Objects
	}
	var out []*config.Config
	for _, object := range objects {
		if object != nil && object.Source != "" {
			out = append(out, object)
		}
	}
	return out
}

// shadow notes the objects of a key, where there are several.
func (c *Content) shadow(path string, objects []*config.Config) {
	if len(objects) > 1 {
		c.Shadows = c.Shadows.Set(path, &Shadow{objects})
	}
}
