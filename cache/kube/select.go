package kube

import (
	"github.com/portolan-mesh/portolan/cache/kube/selection"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/health"
	"github.com/portolan-mesh/portolan/storage/pmap"
)

// choose takes which namespaces count.
func (c *Cache) choose(now selection.Selection) {
	c.mu.Lock()
	defer c.mu.Unlock()
	by := selection.Paths{Of: namespaceOf, Prefixes: c.prefixes}
	out, in := selection.Moved(c.selected, now, c.configs, by), selection.Moved(c.selected, now, c.aside, by)
	c.selected, c.chosen = now, true
	for _, paths := range [][]string{out, in} {
		for _, path := range paths {
			c.put(path, c.known(path))
		}
	}
	c.publishWhole()
}

// known returns an object with its health, whether it counts or not; nil for none. The caller holds mu.
func (c *Cache) known(path string) *config.Config {
	object := c.configs.Value(path)
	if object == nil {
		object = c.aside.Value(path)
	}
	if object == nil || !isWorkload(object.GroupVersionKind) {
		return object
	}
	return WithHealth(object, c.health.Value(health.Path(object.Namespace, object.Name)))
}

// put keeps an object where its namespace has it, and its health; nil is for none. The caller holds mu.
func (c *Cache) put(path string, object *config.Config) {
	if object == nil {
		c.configs, c.aside = c.configs.Delete(path), c.aside.Delete(path)
		c.setHealth(path, nil)
		return
	}
	object, report := split(object)
	c.setHealth(path, report)
	for _, all := range []pmap.Map[*config.Config]{c.configs, c.aside} {
		if was := all.Value(path); same(was, object) {
			object = was // only its health differs
		}
	}
	if c.selected.Has(object.Namespace) {
		c.configs, c.aside = c.configs.Set(path, object), c.aside.Delete(path)
	} else {
		c.configs, c.aside = c.configs.Delete(path), c.aside.Set(path, object)
	}
}

func namespaceOf(path string) string {
	key, _ := config.KeyOfPath(path)
	return key.Namespace
}

// prefixes returns the prefixes of the paths of a namespace.
func (c *Cache) prefixes(namespace string) (out []string) {
	for _, kind := range c.kinds {
		out = append(out, config.NamespacePath(kind.GroupVersionKind, namespace))
	}
	return out
}
