package xds

import (
	"log/slog"
	"maps"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/xds/memo"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// TestWorld shows a world to tests.
type TestWorld struct {
	*world
	types []ResourceType
}

// NewTestWorld makes the empty world of a proxy.
func NewTestWorld(proxy *discovery.Proxy, types []ResourceType, m *memo.Memo, logger *slog.Logger) TestWorld {
	return TestWorld{newWorld(proxy, types, m, logger), types}
}

// Advance brings the world to a context.
func (w TestWorld) Advance(to *mesh.PushContext) { w.advance(to) }

// Close gives up what the world holds.
func (w TestWorld) Close() { w.close() }

// Set is the resources of a type by its short name.
func (w TestWorld) Set(name string) resource.Set {
	for _, t := range w.types {
		if t.Name == name {
			return w.resources(t.Generator.TypeURL())
		}
	}
	return resource.Set{}
}

// Versions are the versions of the resources by type and name.
func (w TestWorld) Versions() map[string]string {
	out := map[string]string{}
	for _, t := range w.types {
		for name, r := range w.resources(t.Generator.TypeURL()).All() {
			out[t.Name+" "+name] = r.Version
		}
	}
	return out
}

// Walked are the versions of the resources that a full walk makes.
func (w TestWorld) Walked() (map[string]string, error) {
	byType := map[string]map[string]string{}
	out := map[string]string{}
	for _, t := range w.types {
		built, err := walk(t.Generator, w.context, w.class)
		if err != nil {
			return nil, err
		}
		versions := map[string]string{}
		for name, r := range built {
			if parent, ok := byType[t.Parent][name]; ok && t.CoverParent {
				r = r.Under(parent)
			}
			versions[name] = r.Version
			out[t.Name+" "+name] = r.Version
		}
		byType[t.Generator.TypeURL()] = maps.Clone(versions)
	}
	return out, nil
}

// Inputs are what the server committed last.
func (s *DiscoveryServer) Inputs() mesh.Inputs { return *s.inputs.Load() }
