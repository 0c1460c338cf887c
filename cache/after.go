package cache

import (
	"time"

	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/plan"
)

// After returns the snapshot as it would be after operations, applied as one at the next
// revision. It does not look at versions. New objects are as old as the store would make
// them, and the domain is theirs.
func (s *Snapshot) After(ops []storage.Op, domain string) *Snapshot {
	content, now := s.Content(), time.Now()
	for _, op := range ops {
		path := op.Target().Path()
		if op.Config == nil {
			content.Configs = content.Configs.Delete(path)
			continue
		}
		object := *op.Config
		object.CreationTimestamp, object.Domain = plan.Created(op, now), domain
		if old := content.Configs.Value(path); old != nil {
			object.CreationTimestamp = old.CreationTimestamp
		}
		content.Configs = content.Configs.Set(path, &object)
	}
	return s.Next(s.Revision()+1, content)
}
