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
func (s *Snapshot) Now() (c status.Count) {
	for i := range s.proxies {
		switch s.proxies[i].now(s.generation) {
		case waiting:
			c.Waiting++
		case rejected:
			c.Rejected++
		default:
			c.Accepted++
		}
	}
	return c
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

// tallyNow counts how the proxies of all servers took the content of an object of another
// source than the store, and how many servers do not have it so. What proxies refuse counts
// where they name the object, which is not known here.
func tallyNow(facts *statuses.Facts, object *config.Config) (count status.Count, behind int) {
	for replica := range facts.Replicas.Values() {
		if !hasContent(facts, replica.ID, object) {
			behind++
			continue
		}
		count = count.Plus(replica.Now)
	}
	if facts.Replicas.Len() == 0 {
		behind = 1 // the server that runs this has not reported yet
	}
	count.Accepted, count.Rejected = count.Accepted+count.Rejected, 0
	return count, behind
}

// OfObject returns how far the content of an object of another source than the store has
// come. A server that does not have it so is behind.
func (v *View) OfObject(object *config.Config) Distribution {
	facts, _ := v.Statuses.Facts()
	published := v.Beside.has(object) // before the progress that it is part of
	p := v.Server.Progress()
	path := object.Key().Path()
	out := Distribution{Revision: p.Published, Published: p.Published, Problems: p.Problems(maxNamed)}
	if published {
		out.Count = p.Now()
	} else {
		out.Behind = append(out.Behind, v.ID)
	}
	if facts != nil {
		for replica := range facts.Replicas.Values() {
			switch {
			case replica.ID == v.ID:
			case hasContent(facts, replica.ID, object):
				out.Count = out.Plus(replica.Now)
				out.Problems = append(out.Problems, replica.Problems...)
			default:
				out.Behind = append(out.Behind, replica.ID)
			}
		}
		out.Gone = v.gone(p, facts)
		out.Offline = len(out.Gone)
		out.Gone = out.Gone[:min(len(out.Gone), maxNamed)]
	}
	refusing := map[string]bool{}
	out.Problems = slices.DeleteFunc(out.Problems, func(t status.Problem) bool {
		named := slices.Contains(t.Objects, path)
		if t.Rejected && named && t.Node != "" {
			refusing[t.Node] = true
		}
		return t.Rejected && !named
	})
	out.Problems = relevant(out.Problems, p.Published+1, true)
	others := out.Rejected - min(out.Rejected, len(refusing))
	out.Accepted, out.Rejected = out.Accepted+others, out.Rejected-others
	return out
}

// has says whether an object of another source than the store is published as it is.
func (b *Beside) has(object *config.Config) bool {
	if b == nil {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	id := status.ObjectID(object.Key())
	source := b.sources[object.Source]
	if source == nil {
		return false
	}
	one, ok := source.parts[status.UsePart(id)].objects[id]
	return ok && one.Hash == status.VersionHash(object.ResourceVersion)
}
