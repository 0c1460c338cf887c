package beside

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/storage/address"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/etcd"
	"github.com/portolan-mesh/portolan/storage/status"
)

// Sources records the objects of this server from sources other than the store, and how
// other servers differ. The zero Sources is for a server without such sources.
type Sources struct {
	// States returns the states of the sources, in their order: names, completeness and
	// problems. Newest returns the newest configuration.
	States func() []status.SourceState
	Newest func() *cache.Snapshot

	mu          sync.Mutex // guards the fields below
	published   *cache.Snapshot
	sources     map[string]*sourceObjects
	whole       map[string]bool    // the sources that were complete in the last report
	since       map[pair]time.Time // since when a difference exists
	differences []Difference       // those that have lasted
}

// sourceObjects are the published objects of a source.
type sourceObjects struct {
	parts   [status.UseParts]sourcePart
	objects int
	digest  uint64
}

// sourcePart is a part of these objects, by id.
type sourcePart struct {
	objects map[uint64]sourceObject
	content *status.Content // nil if it must be made again
}

type sourceObject struct {
	status.ContentObject
	key   config.Key
	hosts []uint64
}

// Follow records a published snapshot. Its cost follows the difference from the one
// before.
func (s *Sources) Follow(next *cache.Snapshot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for change := range cache.ChangedBeside(s.published, next) {
		for _, object := range change.Old {
			if !slices.Contains(change.New, object) {
				s.drop(object)
			}
		}
		for _, object := range change.New {
			if !slices.Contains(change.Old, object) {
				s.put(object)
			}
		}
	}
	s.published = next
}

func (s *Sources) drop(object *config.Config) {
	source, id := s.sources[object.Source], status.ObjectID(object.Key())
	part := &source.parts[status.UsePart(id)]
	source.objects--
	source.digest -= part.objects[id].Digest()
	delete(part.objects, id)
	part.content = nil
}

func (s *Sources) put(object *config.Config) {
	if s.sources == nil {
		s.sources = map[string]*sourceObjects{}
	}
	source := s.sources[object.Source]
	if source == nil {
		source = &sourceObjects{}
		s.sources[object.Source] = source
	}
	one := sourceObject{key: object.Key(), ContentObject: status.ContentObject{
		ID: status.ObjectID(object.Key()), Hash: status.VersionHash(object.ResourceVersion),
	}}
	for _, host := range address.Hosts(object) {
		one.hosts = append(one.hosts, status.HostID(object.Namespace, host))
	}
	part := &source.parts[status.UsePart(one.ID)]
	if part.objects == nil {
		part.objects = map[uint64]sourceObject{}
	}
	part.objects[one.ID], part.content = one, nil
	source.objects++
	source.digest += one.Digest()
}

// find is called with mu held.
func (s *Sources) find(source string, id uint64) (one sourceObject, ok bool) {
	if of := s.sources[source]; of != nil {
		one, ok = of.parts[status.UsePart(id)].objects[id]
	}
	return one, ok
}

// Report is everything that a server reports about its sources.
type Report struct {
	States   []status.SourceState
	Contents map[string]*status.Content // by etcd.ContentKey
}

// Report returns the present report. Equal parts of two reports are the same value.
func (s *Sources) Report(replica string) Report {
	if s.States == nil {
		return Report{}
	}
	// The states are read before the published objects, so that no state is newer than
	// these.
	states, newest := s.States(), s.Newest()
	s.mu.Lock()
	defer s.mu.Unlock()
	caughtUp := newest != nil && s.published != nil && newest.Content().Configs == s.published.Content().Configs &&
		newest.Content().Shadows == s.published.Content().Shadows
	out, whole := Report{Contents: map[string]*status.Content{}}, map[string]bool{}
	for _, state := range states {
		state.Complete = state.Complete && (caughtUp || s.whole[state.Name])
		whole[state.Name] = state.Complete
		if source := s.sources[state.Name]; source != nil {
			state.Objects, state.Digest = source.objects, source.digest
			for i := range source.parts {
				if content := source.parts[i].statusContent(replica, state.Name, i); content != nil {
					out.Contents[etcd.ContentKey(replica, state.Name, i)] = content
				}
			}
		}
		out.States = append(out.States, state)
	}
	s.whole = whole
	return out
}

// statusContent returns the content of a part, nil if it is empty.
func (p *sourcePart) statusContent(replica, source string, part int) *status.Content {
	if p.content == nil && len(p.objects) > 0 {
		out := &status.Content{Replica: replica, Source: source, Part: part}
		for _, id := range slices.Sorted(maps.Keys(p.objects)) {
			one := p.objects[id]
			out.Objects, out.Hosts = append(out.Objects, one.ContentObject), append(out.Hosts, one.hosts...)
		}
		slices.Sort(out.Hosts)
		out.Hosts = slices.Compact(out.Hosts)
		p.content = out
	}
	return p.content
}

// Has says whether this version of an object of a source other than the store is
// published.
func (s *Sources) Has(object *config.Config) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	one, ok := s.find(object.Source, status.ObjectID(object.Key()))
	return ok && one.Hash == status.VersionHash(object.ResourceVersion)
}
