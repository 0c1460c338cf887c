package generate

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/go-multierror"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// Builder builds the resources of one proxy in one context, one by one or a whole type at
// once. It serves explanations and tests; package desired builds what servers send. A
// Builder is for one goroutine.
type Builder struct {
	view       *mesh.View
	class      *mesh.View // as all proxies of the class see it, for what they share
	whole      mesh.Delta
	generators []Generator
	all        map[string]builtType // what All has built, by type
}

// builtType holds the resources of a type, and the errors of others.
type builtType struct {
	resources []Built
	err       error
}

// Built is a resource, the queries of its generator, and what became of patches of EnvoyFilters on it.
// Those on its parts are not among them.
type Built struct {
	*resource.Resource
	Reads   []mesh.Dependency
	Patches []mesh.PatchNote
}

// NewBuilder returns a Builder for a proxy. Several generators may have the same type.
func NewBuilder(push *mesh.PushContext, proxy *discovery.Proxy, generators []Generator) *Builder {
	class := mesh.NewView(push, push.ClassOf(proxy))
	return &Builder{
		view: class.Of(proxy), class: class, whole: mesh.Diff(nil, push),
		generators: generators, all: map[string]builtType{},
	}
}

// View returns the context as the proxy sees it.
func (b *Builder) View() *mesh.View { return b.view }

// All builds the resources of a type, by generator and name. Composed resources have
// their parts. Resources that cannot be built are missing; the error says why.
func (b *Builder) All(typeURL string) ([]Built, error) {
	if all, ok := b.all[typeURL]; ok {
		return all.resources, all.err
	}
	var out []Built
	var failed *multierror.Error
	for g := range b.generatorsOf(typeURL) {
		for _, name := range slices.Compact(slices.Sorted(g.Affected(b.viewFor(g), b.whole))) {
			built, err := b.build(g, name)
			if err != nil {
				failed = multierror.Append(failed, fmt.Errorf("build %s: %w", name, err))
			} else if built.Resource != nil {
				out = append(out, built)
			}
		}
	}
	b.all[typeURL] = builtType{out, failed.ErrorOrNil()}
	return out, failed.ErrorOrNil()
}

// Needed builds the resources of a type that some built resources need (resource.Once), in order.
// Those that cannot be built are missing; the error says why.
func (b *Builder) Needed(typeURL string, by []Built) ([]Built, error) {
	names := map[string]bool{}
	for _, built := range by {
		for n := range built.EachNeed {
			if n.TypeURL == typeURL && n.Kind == resource.Once {
				names[n.Name] = true
			}
		}
	}
	var out []Built
	var failed *multierror.Error
	for _, name := range slices.Sorted(maps.Keys(names)) {
		built, err := b.One(typeURL, name)
		if err != nil {
			failed = multierror.Append(failed, fmt.Errorf("build %s: %w", name, err))
		} else if built.Resource != nil {
			out = append(out, built)
		}
	}
	return out, failed.ErrorOrNil()
}

// One builds the resource with a name. The result has no Resource if there is none.
func (b *Builder) One(typeURL, name string) (Built, error) {
	for g := range b.generatorsOf(typeURL) {
		if built, err := b.build(g, name); err != nil || built.Resource != nil {
			return built, err
		}
	}
	return Built{}, nil
}

// generatorsOf iterates over the generators of a type.
func (b *Builder) generatorsOf(typeURL string) iter.Seq[Generator] {
	return func(yield func(Generator) bool) {
		for _, g := range b.generators {
			if g.TypeURL() == typeURL && !yield(g) {
				return
			}
		}
	}
}

// viewFor returns the view that a generator has on servers, too: that of the class for what its
// proxies share.
func (b *Builder) viewFor(g Generator) *mesh.View {
	if _, ok := g.(shared); ok {
		return b.class
	}
	return b.view
}

func (b *Builder) build(g Generator, name string) (Built, error) {
	recording := b.viewFor(g).Recording()
	built, err := Build(g, recording, name)
	if err != nil || built == nil {
		return Built{}, err
	}
	if c, ok := As[Composer](g); ok {
		if built, err = Compose(c, built, b.partsOf(c, name)); err != nil {
			return Built{}, err
		}
	}
	return Built{Resource: built, Reads: recording.Dependencies(), Patches: recording.PatchNotes()}, nil
}

// partsOf iterates over the parts of a resource that can be built.
func (b *Builder) partsOf(c Composer, name string) iter.Seq[*resource.Resource] {
	return func(yield func(*resource.Resource) bool) {
		all, _ := b.All(c.PartsURL()) // its error is that of the parts alone
		for _, part := range all {
			if at := strings.LastIndexByte(part.Name, '/'); at >= 0 && part.Name[:at] == name && !yield(part.Resource) {
				return
			}
		}
	}
}
