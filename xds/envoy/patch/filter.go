package patch

import (
	"cmp"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"
)

// Filter is an EnvoyFilter, parsed. It is never modified after Parse.
type Filter struct {
	Namespace, Name string
	Created         time.Time
	Priority        int32
	// Patches are its configPatches, all of them and in order.
	Patches []*Patch
}

// Compare orders EnvoyFilters as they apply: by priority, those of the root namespace first, by
// creation time, and by name and namespace. (Istio: pilot/pkg/model initEnvoyFilters.)
func (f *Filter) Compare(other *Filter, root string) int {
	return cmp.Or(
		cmp.Compare(f.Priority, other.Priority),
		-compareBool(f.Namespace == root, other.Namespace == root),
		f.Created.Compare(other.Created),
		strings.Compare(f.Name+"."+f.Namespace, other.Name+"."+other.Namespace),
	)
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

// Patch is one element of configPatches. It is never modified after Parse, and two patches are the
// same one if their pointers are equal.
type Patch struct {
	Filter *Filter
	// Index is its place in configPatches.
	Index int
	// Err says why the patch never applies: something is missing, or its value cannot be read.
	Err error

	ApplyTo networking.EnvoyFilter_ApplyTo
	// Operation is that of the spec, or ADD where Istio takes an INSERT for an ADD.
	Operation networking.EnvoyFilter_Patch_Operation
	// Context is the context that the patch matches, ANY if it names none.
	Context networking.EnvoyFilter_PatchContext

	match   *networking.EnvoyFilter_EnvoyConfigObjectMatch // never nil
	class   networking.EnvoyFilter_Patch_FilterClass
	value   proto.Message // nil for REMOVE, and with Err
	version *regexp.Regexp
}

// String names the patch in messages: shop/lua configPatches[2].
func (p *Patch) String() string {
	return p.Filter.Namespace + "/" + p.Filter.Name + " configPatches[" + strconv.Itoa(p.Index) + "]"
}

// ForProxy says whether the patch is for a proxy by match.proxy: version is its ISTIO_VERSION, and
// metadata its node metadata that are strings, of which it needs those in MetadataKeys. A proxy
// without a version matches no expression.
func (p *Patch) ForProxy(version string, metadata map[string]string) bool {
	for key, want := range p.match.GetProxy().GetMetadata() {
		if metadata[key] != want {
			return false
		}
	}
	return p.version == nil || version != "" && p.version.MatchString(version)
}

// MetadataKeys returns the keys of node metadata that ForProxy reads, sorted.
func (p *Patch) MetadataKeys() []string {
	var out []string
	for key := range p.match.GetProxy().GetMetadata() {
		out = append(out, key)
	}
	slices.Sort(out)
	return out
}
