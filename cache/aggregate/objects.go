package aggregate

import (
	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/pmap"
)

// Object is an object of a source.
type Object struct {
	*config.Config
	// Place is where in the source the object stands, "" if unknown.
	Place string
	// Shadowed says that another source has the key and goes before this one. By names
	// that source.
	Shadowed bool
	By       string
}

// Objects returns all objects of a source, by kind, namespace and name; false for an
// unknown source.
func (c *Cache) Objects(name string) ([]Object, bool) {
	c.mu.Lock()
	m := c.member(name)
	if m == nil {
		c.mu.Unlock()
		return nil, false
	}
	objects, shadows, isStore, place := m.objects, c.shadows, m.own, m.Place
	store := c.store.Name
	c.mu.Unlock()
	out := make([]Object, 0, objects.Len())
	for path, object := range objects.All() {
		one := Object{Config: object}
		if place != nil {
			one.Place = place(object.Key())
		}
		if winner := winnerOf(shadows, path); winner != nil && winner.Source != object.Source {
			one.Shadowed, one.By = true, winner.Source
			if one.By == "" && !isStore {
				one.By = store
			}
		}
		out = append(out, one)
	}
	return out, true
}

// winnerOf returns the object that counts if several sources have a key, nil otherwise.
func winnerOf(shadows pmap.Map[*cache.Shadow], path string) *config.Config {
	if shadow := shadows.Value(path); shadow != nil {
		return shadow.Objects[0]
	}
	return nil
}
