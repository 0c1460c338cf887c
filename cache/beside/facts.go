package beside

import (
	"slices"

	"github.com/portolan-mesh/portolan/cache/statuses"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/etcd"
	"github.com/portolan-mesh/portolan/storage/status"
)

// Has says whether a server has published this version of an object of a source other
// than the store.
func Has(facts *statuses.Reports, replica string, object *config.Config) bool {
	found, ok := contentOf(facts, replica, status.ObjectID(object.Key()))
	return ok && slices.ContainsFunc(found, func(o status.ContentObject) bool {
		return o.Hash == status.VersionHash(object.ResourceVersion)
	})
}

// contentOf returns the objects with an id in the sources of a server. It returns false
// if the server has not reported its sources.
func contentOf(facts *statuses.Reports, replica string, id uint64) (found []status.ContentObject, ok bool) {
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

// MayHave says whether a live server has an object of a source other than the store, or
// may have it because it has not reported all its sources.
func MayHave(facts *statuses.Reports, key config.Key) bool {
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
