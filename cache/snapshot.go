package cache

import (
	"iter"
	"strconv"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/pmap"
)

// Snapshot is all configuration as of one revision of its source. It is never
// modified, costs nothing to keep beyond what differs from its neighbours, and
// is read without locks. The nil Snapshot is empty, at revision 0.
type Snapshot struct {
	revision, epoch int64
	configs         pmap.Map[*config.Config]
}

// NewSnapshot makes a snapshot of the objects in configs, keyed by the Path of
// their keys.
func NewSnapshot(revision int64, configs pmap.Map[*config.Config]) *Snapshot {
	return &Snapshot{revision: revision, configs: configs}
}

// Next makes the snapshot that follows s in its epoch.
func (s *Snapshot) Next(revision int64, configs pmap.Map[*config.Config]) *Snapshot {
	return &Snapshot{revision: revision, epoch: s.Epoch(), configs: configs}
}

// InEpoch is the snapshot as one of an epoch.
func (s *Snapshot) InEpoch(epoch int64) *Snapshot {
	return &Snapshot{revision: s.revision, epoch: epoch, configs: s.configs}
}

// Epoch counts how often the source turned out to be another one, or an older
// state of itself (a restored etcd). It never goes back.
func (s *Snapshot) Epoch() int64 {
	if s == nil {
		return 0
	}
	return s.epoch
}

// Revision is that of the source. Within an epoch it never goes back from one
// snapshot to the next, and it may grow where no object differs.
func (s *Snapshot) Revision() int64 {
	if s == nil {
		return 0
	}
	return s.revision
}

// Version is the revision as an opaque string.
func (s *Snapshot) Version() string { return strconv.FormatInt(s.Revision(), 10) }

// Configs are all objects by the Path of their keys.
func (s *Snapshot) Configs() pmap.Map[*config.Config] {
	if s == nil {
		return pmap.Map[*config.Config]{}
	}
	return s.configs
}

// Get returns an object, nil where there is none.
func (s *Snapshot) Get(key config.Key) *config.Config { return s.Configs().Value(key.Path()) }

// List iterates over the objects of a kind, of one namespace or of all (""), in
// the order of the Paths of their keys. That is a fixed order, by name within a
// namespace, and yet not that of the namespaces: "a-b/" comes before "a/".
func (s *Snapshot) List(kind config.GroupVersionKind, namespace string) iter.Seq[*config.Config] {
	prefix := config.KindPath(kind)
	if namespace != "" {
		prefix = config.NamespacePath(kind, namespace)
	}
	return func(yield func(*config.Config) bool) {
		for _, c := range s.Configs().Prefix(prefix) {
			if !yield(c) {
				return
			}
		}
	}
}
