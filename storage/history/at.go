package history

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
)

// At returns the objects of the view as they were at a revision, without objects that had
// no spec. It returns a storage.ErrCompacted if the records cannot tell.
//
// The oldest later record of an object has its state at the revision, as its Before;
// without a later record the state is the present one. That holds if no record in between
// is missing. Above the floor none is; below it a Before that existed at the revision
// already proves it.
func (v Excerpt) At(revision int64) ([]*config.Config, error) {
	var objects []*config.Config
	then, proven, err := v.objectsAt(revision)
	if err != nil {
		return nil, err
	}
	if revision < v.Floor && !proven {
		return nil, fmt.Errorf("%w: the records of these objects are whole above revision %d only", storage.ErrCompacted, v.Floor)
	}
	for _, object := range then {
		if object != nil && object.Spec != nil {
			objects = append(objects, object)
		}
	}
	Order(objects)
	return objects, nil
}

// proves says whether then is certain although records of the scope are gone. It is for a
// single object that existed. The absence of an object is not proven. Neither is a set of
// objects: others may have existed.
func (v Excerpt) proves(then map[config.Key]*config.Config) bool {
	if !v.Single || len(then) != 1 {
		return false
	}
	for _, object := range then {
		return object != nil
	}
	return false
}

// objectsAt returns what is known of the objects at a revision, nil for an absent one, and
// whether that is proven.
func (v Excerpt) objectsAt(revision int64) (then map[config.Key]*config.Config, proven bool, err error) {
	then = map[config.Key]*config.Config{}
	for _, r := range v.Records { // newest first: the oldest wins
		if r.Revision <= revision {
			break
		}
		for _, e := range r.Entries {
			then[e.Key] = e.Before
		}
	}
	for key, object := range v.Live {
		if _, changed := then[key]; !changed {
			then[key] = object
		}
	}
	for key, object := range then {
		if object != nil && revisionOf(object) > revision {
			return nil, false, fmt.Errorf("%w: %s changed between, and there is no record of it", storage.ErrCompacted, key)
		}
	}
	return then, v.proves(then), nil
}

// Order sorts objects by groups, kinds, namespaces and names.
func Order(objects []*config.Config) {
	slices.SortFunc(objects, func(a, b *config.Config) int {
		return cmp.Or(
			cmp.Compare(a.Group, b.Group), cmp.Compare(a.Kind, b.Kind),
			cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
}
