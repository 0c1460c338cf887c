package export

import (
	"strings"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// Member is what one client should have. One goroutine at a time uses it.
type Member struct {
	export *Export
	at     *snapshot // nil before the first Advance
}

// Join makes the member of a client.
func (e *Export) Join() *Member {
	e.join()
	return &Member{export: e}
}

// Advance brings what the client should have to the newest context.
func (m *Member) Advance(newest func() *mesh.PushContext) { m.at = m.export.advance(newest) }

// Context is the context that the resources are of; nil before the first Advance.
func (m *Member) Context() *mesh.PushContext {
	if m.at == nil {
		return nil
	}
	return m.at.context
}

// Resources returns what the client should have of a type; nothing for a type that is not
// exported.
func (m *Member) Resources(typeURL string) resource.Set {
	kind, exported := m.export.byURL[typeURL]
	if !exported {
		return resource.Set{}
	}
	return m.at.sets[kind]
}

// Origins returns the object that a resource is. typ is the index of its type.
func (m *Member) Origins(typ int, name string) []config.Key {
	namespace, name, _ := strings.Cut(name, "/")
	return []config.Key{{Kind: m.export.kinds[m.export.types[typ].kind], Namespace: namespace, Name: name}}
}

// Close gives up what the member holds.
func (m *Member) Close() { m.export.leave() }
