package progress

import (
	"slices"

	"github.com/portolan-mesh/portolan/cache/statuses"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/etcd"
	"github.com/portolan-mesh/portolan/storage/status"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
)

// An object of another source than the store has no revision by which it could be said
// which proxies have it. It is judged by all that there is: a server has published its
// content, and its proxies lack nothing of what is published.

// Now counts how the proxies took all that is published, whatever its revision: who lacks
// nothing is Accepted, who rejects something Rejected.
func (s *Snapshot) Now() status.Count {
	return s.count(func(p *Proxy) outcome { return p.now(s.generation) })
}

// now returns how the proxy took all up to a push.
func (p *Proxy) now(generation uint64) outcome {
	out := accepted
	if p.Generation < generation {
		return waiting
	}
	for i := range p.Types {
		switch p.Types[i].State {
		case protocol.Stale:
			return waiting
		case protocol.Rejected:
			out = rejected
		}
	}
	return out
}

// hasContent says whether a server has published an object of another source than the
// store as it is.
func hasContent(facts *statuses.Facts, replica string, object *config.Config) bool {
	found, ok := contentOf(facts, replica, status.ObjectID(object.Key()))
	return ok && slices.ContainsFunc(found, func(o status.ContentObject) bool {
		return o.Hash == status.VersionHash(object.ResourceVersion)
	})
}

// contentOf returns what the sources of a server have of an object, by its id. It returns
// false if the server has not reported its sources.
func contentOf(facts *statuses.Facts, replica string, id uint64) (found []status.ContentObject, ok bool) {
	sources := facts.Sources.Value(etcd.SourcesKey(replica)[len(etcd.SourcesPrefix):])
	if sources == nil {
		return nil, false
	}
	for i := range sources.States {
		part := facts.Contents.Value(etcd.ContentPath(replica, sources.States[i].Name, status.UsePart(id)))
		if one, has := part.Find(id); has {
			found = append(found, one)
		}
	}
	return found, true
}

// mayHave says whether a live server has an object of another source than the store, or
// may have it: one that has not reported its sources, or not all of them.
func mayHave(facts *statuses.Facts, key config.Key) bool {
	for replica := range facts.Replicas.Values() {
		found, reported := contentOf(facts, replica.ID, status.ObjectID(key))
		if !reported || len(found) > 0 {
			return true
		}
		sources := facts.Sources.Value(etcd.SourcesKey(replica.ID)[len(etcd.SourcesPrefix):])
		if slices.ContainsFunc(sources.States, func(s status.SourceState) bool { return !s.Complete }) {
			return true
		}
	}
	return facts.Replicas.Len() == 0
}

// has says whether an object of another source than the store is published as it is.
func (b *Beside) has(object *config.Config) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	one, ok := b.find(object.Source, status.ObjectID(object.Key()))
	return ok && one.Hash == status.VersionHash(object.ResourceVersion)
}
