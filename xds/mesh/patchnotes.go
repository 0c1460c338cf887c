package mesh

import (
	"fmt"
	"slices"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/xds/envoy/patch"
)

// PatchNote says what became of a patch of an EnvoyFilter on one resource.
type PatchNote struct {
	// Filter is the EnvoyFilter, and Index the place of the patch in its configPatches.
	Filter config.Key
	Index  int
	// Err says why the patch could not apply, and changed nothing; empty if it applied.
	Err string
}

// Field is where the patch stands in its EnvoyFilter.
func (n PatchNote) Field() string { return fmt.Sprintf("spec.configPatches[%d]", n.Index) }

// NotePatches records what became of patches on the resource that is being built.
func (v *View) NotePatches(results []patch.Result) {
	if v.reads == nil {
		return
	}
	for _, r := range results {
		n := PatchNote{Filter: config.Key{Kind: schema.EnvoyFilter, Namespace: r.Patch.Filter.Namespace, Name: r.Patch.Filter.Name}, Index: r.Patch.Index}
		if r.Err != nil {
			n.Err = r.Err.Error()
		}
		if !slices.Contains(v.reads.patches, n) {
			v.reads.patches = append(v.reads.patches, n)
		}
	}
}

// PatchNotes returns what NotePatches recorded, each once and in the order of the patches.
func (v *View) PatchNotes() []PatchNote { return slices.Clip(v.reads.patches) }
