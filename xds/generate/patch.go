package generate

import (
	"iter"

	"google.golang.org/protobuf/proto"

	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// Patch changes the resources of one type. Like a Generator it has no state and reads
// everything through the View, so a resource is built again when something that the patch
// read changes.
type Patch interface {
	// Affected yields the names of resources that the patch may add or remove because of
	// d; see Generator.
	Affected(v *mesh.View, d mesh.Delta) iter.Seq[string]
	// Apply returns the message and its needs that replace the given ones, nil for none.
	// message is nil if there was none of that name before the patch. Others may share the
	// message, and Apply must not modify it: it returns a new one if it changes anything.
	Apply(v *mesh.View, name string, message proto.Message, needs []resource.Need) (proto.Message, []resource.Need, error)
}

// Patched returns the type with patches. They apply in order to every message that its
// generators build, before it is encoded. Patches can add resources of a class. Patches
// of Inbound only edit and remove.
func (t ResourceType) Patched(patches ...Patch) ResourceType {
	if len(patches) == 0 {
		return t
	}
	t.Generator = &patched{t.Generator, patches, true}
	if t.Inbound != nil {
		t.Inbound = &patched{t.Inbound, patches, false}
	}
	if t.Proxyless != nil {
		t.Proxyless = &patched{t.Proxyless, patches, true}
	}
	return t
}

// patched is a generator with patches.
type patched struct {
	Generator
	patches []Patch
	adds    bool // whether the patches add resources
}

// Unwrap returns the generator without the patches.
func (p patched) Unwrap() Generator { return p.Generator }

// Affected implements Generator.
func (p patched) Affected(v *mesh.View, d mesh.Delta) iter.Seq[string] {
	return func(yield func(string) bool) {
		for name := range p.Generator.Affected(v, d) {
			if !yield(name) {
				return
			}
		}
		if !p.adds {
			return
		}
		for _, patch := range p.patches {
			for name := range patch.Affected(v, d) {
				if !yield(name) {
					return
				}
			}
		}
	}
}

// Build implements Generator.
func (p patched) Build(v *mesh.View, name string) (proto.Message, []resource.Need, error) {
	message, needs, err := p.Generator.Build(v, name)
	if encoded, ok := message.(resource.Encoded); ok && err == nil {
		message, err = encoded.Decode()
	}
	for _, patch := range p.patches {
		if err != nil || message == nil && !p.adds {
			return nil, nil, err
		}
		message, needs, err = patch.Apply(v, name, message, needs)
	}
	return message, needs, err
}
