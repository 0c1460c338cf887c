package cache

import (
	"iter"
	"strconv"

	"github.com/portolan-mesh/portolan/storage/address"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/health"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/storage/status"
)

// Snapshot is all configuration, and what the store keeps beside it, as of one
// revision of its source. It is never modified, costs nothing to keep beyond what
// differs from its neighbours, and is read without locks. The nil Snapshot is
// empty, at revision 0.
type Snapshot struct {
	revision, epoch int64
	changed         int64 // the revision that made the content
	content         Content
}

// Content is what a snapshot holds. Two that are == share all of it.
type Content struct {
	// Configs are the objects by the Path of their keys.
	Configs pmap.Map[*config.Config]
	// Addresses are those that hosts were given, by address.Path.
	Addresses pmap.Map[*address.Assignment]
	// Health is how workloads are, by health.Path.
	Health pmap.Map[*health.Report]
	// Statuses are what servers say of objects, by the Path of their keys. Nothing
	// that is generated depends on them, and only the snapshots that clients are
	// answered from have any.
	Statuses pmap.Map[*status.Report]
}

// NewSnapshot makes a snapshot of objects alone, keyed by the Path of their keys.
func NewSnapshot(revision int64, configs pmap.Map[*config.Config]) *Snapshot {
	return (*Snapshot)(nil).Next(revision, Content{Configs: configs})
}

// Next makes the snapshot that follows s in its epoch; after the nil Snapshot it
// is the first one.
func (s *Snapshot) Next(revision int64, content Content) *Snapshot {
	changed := revision
	if s != nil && s.content == content {
		changed = s.changed
	}
	return &Snapshot{revision: revision, changed: changed, epoch: s.Epoch(), content: content}
}

// InEpoch is the snapshot as one of an epoch.
func (s *Snapshot) InEpoch(epoch int64) *Snapshot {
	return &Snapshot{revision: s.revision, changed: s.changed, epoch: epoch, content: s.content}
}

// WithStatuses is the snapshot with other statuses.
func (s *Snapshot) WithStatuses(statuses pmap.Map[*status.Report]) *Snapshot {
	content := s.content
	content.Statuses = statuses
	return &Snapshot{revision: s.revision, changed: s.changed, epoch: s.epoch, content: content}
}

// Until is the snapshot as of an earlier revision, from Changed on.
func (s *Snapshot) Until(revision int64) *Snapshot {
	return &Snapshot{revision: min(s.revision, revision), changed: s.changed, epoch: s.epoch, content: s.content}
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

// Changed is the revision that made the content of the snapshot: from there to
// Revision nothing differs. Of a list it is that of the list.
func (s *Snapshot) Changed() int64 {
	if s == nil {
		return 0
	}
	return s.changed
}

// Version is the revision as an opaque string.
func (s *Snapshot) Version() string { return strconv.FormatInt(s.Revision(), 10) }

// Content is all that the snapshot holds.
func (s *Snapshot) Content() Content {
	if s == nil {
		return Content{}
	}
	return s.content
}

// Configs are all objects by the Path of their keys.
func (s *Snapshot) Configs() pmap.Map[*config.Config] { return s.Content().Configs }

// Addresses are those that hosts were given, by address.Path.
func (s *Snapshot) Addresses() pmap.Map[*address.Assignment] { return s.Content().Addresses }

// Health is what was last said of workloads, by health.Path.
func (s *Snapshot) Health() pmap.Map[*health.Report] { return s.Content().Health }

// Statuses are what servers say of objects, by the Path of their keys.
func (s *Snapshot) Statuses() pmap.Map[*status.Report] { return s.Content().Statuses }

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

// differences counts what differs between two contents.
func (c Content) differences(o Content) int {
	return count(c.Configs, o.Configs) + count(c.Addresses, o.Addresses) + count(c.Health, o.Health) +
		count(c.Statuses, o.Statuses)
}

func count[V comparable](from, to pmap.Map[V]) (n int) {
	for range pmap.Diff(from, to) {
		n++
	}
	return n
}
