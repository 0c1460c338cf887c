package generate

import (
	"iter"

	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// Patch changes what a Generator makes. Like a Generator it has no state, and what
// it depends on it reads through the View: a resource is built again when that
// changes.
type Patch interface {
	// Affected names the resources that the patch may add or take away because of
	// d; see Generator.
	Affected(v *mesh.View, d mesh.Delta) iter.Seq[string]
	// Apply returns what stands in the place of a resource, nil for none. built is
	// nil where there is none of that name before the patch. It is shared, and must
	// not be modified: a resource that differs is a new one.
	Apply(v *mesh.View, name string, built *resource.Resource) (*resource.Resource, error)
}

// Patched returns g with patches applied to each resource that it builds, in
// order. It is a Composer and an Emptier where g is: of a composed resource the
// patches change its own part; those of its parts are patches of their generator.
func Patched(g Generator, patches ...Patch) Generator {
	if len(patches) == 0 {
		return g
	}
	p := patched{g, patches}
	composer, composes := g.(Composer)
	emptier, empties := g.(Emptier)
	switch {
	case composes && empties:
		return struct {
			patched
			Emptier
			composing
		}{p, emptier, composing{composer}}
	case composes:
		return struct {
			patched
			composing
		}{p, composing{composer}}
	case empties:
		return struct {
			patched
			Emptier
		}{p, emptier}
	}
	return p
}

// composing is the part of a Composer that a Generator does not have.
type composing struct{ of Composer }

// PartsURL implements Composer.
func (c composing) PartsURL() string { return c.of.PartsURL() }

// Compose implements Composer.
func (c composing) Compose(own *resource.Resource, parts iter.Seq[*resource.Resource]) (*resource.Resource, error) {
	return c.of.Compose(own, parts)
}

// patched is a generator and what is done to its resources.
type patched struct {
	Generator
	patches []Patch
}

// Affected implements Generator.
func (p patched) Affected(v *mesh.View, d mesh.Delta) iter.Seq[string] {
	return func(yield func(string) bool) {
		for name := range p.Generator.Affected(v, d) {
			if !yield(name) {
				return
			}
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
func (p patched) Build(v *mesh.View, name string) (*resource.Resource, error) {
	built, err := p.Generator.Build(v, name)
	for _, patch := range p.patches {
		if err != nil {
			return nil, err
		}
		built, err = patch.Apply(v, name, built)
	}
	return built, err
}
