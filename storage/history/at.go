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
// At a revision an object was what the oldest later record says it was before; without such
// a record it was what it is now. That holds if no record between is missing: above the
// floor none is, and below it an entry proves it by a Before that was there at the revision
// already.
func (v View) At(revision int64) ([]*config.Config, error) {
	var objects []*config.Config
	then, proven, err := v.then(revision)
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

// proves says whether the view tells what the one object that it is of was at
// a revision, although records of its scope are gone. An object that was absent
// is not proven so, nor are several: any number of others may have been there.
func (v View) proves(then map[config.Key]*config.Config) bool {
	if !v.Single || len(then) != 1 {
		return false
	}
	for _, object := range then {
		return object != nil
	}
	return false
}

// then is what is known of the objects at a revision; nil is an absent one.
func (v View) then(revision int64) (then map[config.Key]*config.Config, proven bool, err error) {
	then = map[config.Key]*config.Config{}
	for _, r := range v.Records { // Newest first: the oldest has the last word.
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
