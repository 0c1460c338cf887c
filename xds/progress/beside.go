package progress

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

// Beside knows what this server has of sources other than the store, reports it, and tells
// what other servers have otherwise. The
// zero Beside is of a server without such sources.
type Beside struct {
	// States tells how the sources are, in their order: their names, whether all that they
	// have was read, and what is wrong with them. Newest is the newest configuration.
	States func() []status.SourceState
	Newest func() *cache.Snapshot

	mu          sync.Mutex // guards the fields below
	published   *cache.Snapshot
	sources     map[string]*besideSource
	whole       map[string]bool    // the sources that were complete at the last look
	since       map[pair]time.Time // since when there is what differs
	differences []Difference       // those that last
}

// besideSource is the published objects of a source.
type besideSource struct {
	parts   [status.UseParts]besidePart
	objects int
	digest  uint64
}

// besidePart is a part of them, by their ids.
type besidePart struct {
	objects map[uint64]besideObject
	content *status.Content // nil if it is to be made anew
}

type besideObject struct {
	status.ContentObject
	key   config.Key
	hosts []uint64
}

// Follow takes a snapshot that was published. Its cost follows what differs from
// the one before.
func (b *Beside) Follow(to *cache.Snapshot) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for change := range cache.ChangedBeside(b.published, to) {
		for _, object := range change.Old {
			if !slices.Contains(change.New, object) {
				b.drop(object)
			}
		}
		for _, object := range change.New {
			if !slices.Contains(change.Old, object) {
				b.put(object)
			}
		}
	}
	b.published = to
}

// drop takes an object out.
func (b *Beside) drop(object *config.Config) {
	source, id := b.sources[object.Source], status.ObjectID(object.Key())
	part := &source.parts[status.UsePart(id)]
	source.objects--
	source.digest -= part.objects[id].Digest()
	delete(part.objects, id)
	part.content = nil
}

// put adds an object.
func (b *Beside) put(object *config.Config) {
	if b.sources == nil {
		b.sources = map[string]*besideSource{}
	}
	source := b.sources[object.Source]
	if source == nil {
		source = &besideSource{}
		b.sources[object.Source] = source
	}
	one := besideObject{key: object.Key(), ContentObject: status.ContentObject{
		ID: status.ObjectID(object.Key()), Hash: status.VersionHash(object.ResourceVersion),
	}}
	for _, host := range address.Hosts(object) {
		one.hosts = append(one.hosts, status.HostID(object.Namespace, host))
	}
	part := &source.parts[status.UsePart(one.ID)]
	if part.objects == nil {
		part.objects = map[uint64]besideObject{}
	}
	part.objects[one.ID], part.content = one, nil
	source.objects++
	source.digest += one.Digest()
}

// find returns a published object of a source by its id. mu is held.
func (b *Beside) find(source string, id uint64) (one besideObject, ok bool) {
	if of := b.sources[source]; of != nil {
		one, ok = of.parts[status.UsePart(id)].objects[id]
	}
	return one, ok
}

// besideReport is all that a server says of its sources.
type besideReport struct {
	states   []status.SourceState
	contents map[string]*status.Content // by etcd.ContentKey
}

// look returns what is to be reported now. Equal parts of two reports are the same.
func (b *Beside) look(replica string) besideReport {
	if b.States == nil {
		return besideReport{}
	}
	// How the sources are is read before what of them was published.
	states, newest := b.States(), b.Newest()
	b.mu.Lock()
	defer b.mu.Unlock()
	caughtUp := newest != nil && b.published != nil && newest.Content().Configs == b.published.Content().Configs &&
		newest.Content().Shadows == b.published.Content().Shadows
	out, whole := besideReport{contents: map[string]*status.Content{}}, map[string]bool{}
	for _, state := range states {
		state.Complete = state.Complete && (caughtUp || b.whole[state.Name])
		whole[state.Name] = state.Complete
		if source := b.sources[state.Name]; source != nil {
			state.Objects, state.Digest = source.objects, source.digest
			for i := range source.parts {
				if content := source.parts[i].made(replica, state.Name, i); content != nil {
					out.contents[etcd.ContentKey(replica, state.Name, i)] = content
				}
			}
		}
		out.states = append(out.states, state)
	}
	b.whole = whole
	return out
}

// made returns the content of a part, nil where it is empty.
func (p *besidePart) made(replica, source string, part int) *status.Content {
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
