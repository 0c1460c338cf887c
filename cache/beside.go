package cache

import (
	"iter"
	"slices"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/pmap"
)

// BesideChange is the objects of one key that sources other than the store have in two
// snapshots, in the order of the sources. At most one of the two is empty.
type BesideChange struct {
	Path     string // of the key
	Old, New []*config.Config
}

// ChangedBeside iterates over the keys whose objects of sources other than the store differ
// between two snapshots. The cost follows the difference.
func ChangedBeside(from, to *Snapshot) iter.Seq[BesideChange] {
	was, is := from.Content(), to.Content()
	return func(yield func(BesideChange) bool) {
		tell := func(path string) bool {
			change := BesideChange{Path: path, Old: besides(was.all(path)), New: besides(is.all(path))}
			return slices.Equal(change.Old, change.New) || yield(change)
		}
		for c := range pmap.Diff(was.Configs, is.Configs) {
			if !tell(c.Key) {
				return
			}
		}
		for c := range pmap.Diff(was.Shadows, is.Shadows) {
			if was.Configs.Value(c.Key) == is.Configs.Value(c.Key) && !tell(c.Key) { // otherwise the first loop yielded it
				return
			}
		}
	}
}

// besides returns the objects of a key that come from sources other than the store.
func besides(all []*config.Config) []*config.Config {
	if !slices.ContainsFunc(all, func(o *config.Config) bool { return o.Source == "" }) {
		return all
	}
	return slices.DeleteFunc(slices.Clone(all), func(o *config.Config) bool { return o.Source == "" })
}
