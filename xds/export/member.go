package export

import (
	"strings"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// Member is the set of resources that one client should have. Only one goroutine at a time may
// use it.
type Member struct {
	export *Export
	at     *snapshot // nil before the first Advance
}

// Join adds a client, and returns its Member. The caller must Close it.
func (e *Export) Join() *Member {
	e.join()
	return &Member{export: e}
}

// Advance updates the member to the newest context.
func (m *Member) Advance(newest func() *mesh.PushContext) { m.at = m.export.advance(newest) }

// Context returns the context of the resources; nil before the first Advance.
func (m *Member) Context() *mesh.PushContext {
	if m.at == nil {
		return nil
	}
	return m.at.push
}

// Resources returns what the client should have of a type, an empty set if the type is not
// exported.
func (m *Member) Resources(typeURL string) resource.Set {
	kind, exported := m.export.byURL[typeURL]
	if !exported {
		return resource.Set{}
	}
	return m.at.sets[kind]
}

// Patches returns nothing: EnvoyFilters patch no objects.
func (m *Member) Patches(string, string) []mesh.PatchNote { return nil }

// Origins returns the object behind a resource. typ is the index of its type.
func (m *Member) Origins(typ int, name string) []config.Key {
	namespace, name, _ := strings.Cut(name, "/")
	return []config.Key{{Kind: m.export.kinds[m.export.types[typ].kind], Namespace: namespace, Name: name}}
}

// Close removes the client. The last one to close frees the resources.
func (m *Member) Close() { m.export.leave() }
