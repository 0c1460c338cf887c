package memo

import (
	"iter"
	"slices"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/xds/generate"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/mesh/origins"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// Built is a resource, nil if its name has none, and the answers that it was built from.
// A composed one has no answers, as it is made of others. A Built is held by its users
// and never modified.
type Built struct {
	Resource *resource.Resource

	reads   []mesh.Dependency
	traits  bool // some of reads are of traits
	patches []mesh.PatchNote
	typeURL string // of the generator; empty for a composed one
	name    string // also of what has no resource; empty for a composed one

	// Set if the resource is shared:
	family   *family // nil for a composed one
	composed *composedID
	users    int // guarded by Memo.mu
	// under has the resource under versions that also cover its parent, the last used
	// last; guarded by Memo.mu.
	under []covering
}

// Alone builds a resource that nobody shares. The error is a *Failure.
func Alone(v *mesh.View, g generate.Generator, name string) (*Built, error) {
	recording := v.Recording()
	built, err := generate.Build(g, recording, name)
	if err != nil {
		return nil, &Failure{err, recording.Dependencies()}
	}
	reads := recording.Dependencies()
	return &Built{
		typeURL: g.TypeURL(), name: name,
		Resource: built, reads: reads, traits: slices.ContainsFunc(reads, mesh.Dependency.OfTrait), patches: recording.PatchNotes(),
	}, nil
}

// Failure is the error of a build, with what the build read before it failed.
type Failure struct {
	Err   error
	Reads []mesh.Dependency
}

// Error implements error.
func (f *Failure) Error() string { return f.Err.Error() }

// Unwrap returns the error of the generator.
func (f *Failure) Unwrap() error { return f.Err }

// Reads returns what the resource was built from; nothing for nil. The result is
// shared: do not modify it.
func (b *Built) Reads() []mesh.Dependency {
	if b == nil {
		return nil
	}
	return b.reads
}

// Patches returns what became of the patches of EnvoyFilters on the resource, in their order; nothing
// for nil. Where they removed it, the resource is nil. The result is shared: do not modify it.
func (b *Built) Patches() []mesh.PatchNote {
	if b == nil {
		return nil
	}
	return b.patches
}

// Origins returns the objects that the resource was built from: the EnvoyFilters that patched it
// first, then the others in the order of their paths.
func (b *Built) Origins() []config.Key {
	var out []config.Key
	for _, p := range b.Patches() {
		if p.Err == "" && !slices.Contains(out, p.Filter) {
			out = append(out, p.Filter)
		}
	}
	return append(out, origins.Of(b.Reads())...)
}

// Holds says whether a view gives the same answers that the resource was built from.
func (b *Built) Holds(v *mesh.View) bool { return Hold(v, b.reads) }

// ReadsTrait says whether the resource was built from a trait of the class.
func (b *Built) ReadsTrait() bool { return b.traits }

// Hold says whether a view gives the recorded answers.
func Hold(v *mesh.View, reads []mesh.Dependency) bool {
	for _, r := range reads {
		if v.Answer(r.Query) != r.Answer {
			return false
		}
	}
	return true
}

// rows iterates over the rows that were read, once per question.
func (b *Built) rows() iter.Seq[mesh.RowKey] {
	return func(yield func(mesh.RowKey) bool) {
		for _, r := range b.reads {
			if r.Query.Row.Table.Tracked() && !yield(r.Query.Row) {
				return
			}
		}
	}
}
