package xdstest

import (
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/xds/desired"
	"github.com/portolan-mesh/portolan/xds/generate"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// Groups has what proxies should have of some types, in the newest context.
type Groups struct {
	*desired.Groups
	types  []generate.ResourceType
	newest func() *mesh.PushContext
}

// NewGroups makes groups that follow the context returned by newest.
func NewGroups(types []generate.ResourceType, newest func() *mesh.PushContext) Groups {
	return Groups{desired.New(types, slog.New(slog.DiscardHandler), func() {}), types, newest}
}

// Join returns the member of a proxy.
func (g Groups) Join(proxy *discovery.Proxy) Member { return Member{g.Groups.Join(proxy), g, proxy} }

// Member has the resources that a proxy should have.
type Member struct {
	*desired.Member
	groups Groups
	proxy  *discovery.Proxy
}

// Proxy is the proxy of the member.
func (m Member) Proxy() *discovery.Proxy { return m.proxy }

// Follow updates the member to the newest context.
func (m Member) Follow() { m.Advance(m.groups.newest) }

// Set returns the resources of a type by its short name.
func (m Member) Set(name string) resource.Set {
	for _, t := range m.groups.types {
		if t.Name == name {
			return m.Resources(t.Generator.TypeURL())
		}
	}
	return resource.Set{}
}

// Versions returns the versions of the resources by type and name.
func (m Member) Versions() map[string]string {
	out := map[string]string{}
	for _, t := range m.groups.types {
		for name, r := range m.Set(t.Name).All() {
			out[t.Name+" "+name] = r.Version
		}
	}
	return out
}

// Walked returns the versions of the resources that a full build makes, without memo, delta or
// other proxies. Versions must always equal it.
func (m Member) Walked() (map[string]string, error) {
	push := m.Context()
	w := walker{
		view: mesh.NewView(push, push.ClassOf(m.proxy)), delta: mesh.Diff(nil, push), proxy: m.proxy.Type,
		types: m.groups.types, built: map[string]map[string]*resource.Resource{},
	}
	out := map[string]string{}
	var needs []resource.Need
	add := func(t generate.ResourceType, built map[string]*resource.Resource) {
		for name, r := range built {
			out[t.Name+" "+name] = r.Version
			needs = append(needs, r.Needs...)
		}
	}
	for _, t := range m.groups.types {
		built, err := w.all(t)
		if err != nil {
			return nil, err
		}
		add(t, built)
		own := t.Own(m.proxy)
		if own == nil {
			continue
		}
		names := own.Affected(w.view.Of(m.proxy), w.delta)
		if t.Needed {
			names = needed(needs, own.TypeURL())
		}
		if built, err = walk(own, w.view.Of(m.proxy), names); err != nil {
			return nil, err
		}
		add(t, built)
	}
	return out, nil
}

// needed iterates over the names of a type that are needed as secrets.
func needed(needs []resource.Need, typeURL string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, n := range needs {
			if n.TypeURL == typeURL && n.Kind == resource.Once && !yield(n.Name) {
				return
			}
		}
	}
}

// walker builds all types once.
type walker struct {
	view  *mesh.View
	delta mesh.Delta
	proxy discovery.ProxyType
	types []generate.ResourceType
	built map[string]map[string]*resource.Resource // by type URL
}

func (w walker) all(t generate.ResourceType) (map[string]*resource.Resource, error) {
	url := t.Generator.TypeURL()
	if done := w.built[url]; done != nil {
		return done, nil
	}
	built, err := walk(t.For(w.proxy), w.view, t.For(w.proxy).Affected(w.view, w.delta))
	if err != nil {
		return nil, err
	}
	if c, ok := generate.As[generate.Composer](t.For(w.proxy)); ok {
		if built, err = w.compose(c, built); err != nil {
			return nil, err
		}
	}
	w.cover(url, built)
	w.built[url] = built
	return built, nil
}

// cover sets the versions of resources that others need as resource.Covered. The new version
// joins those of the others: first of the same name, then by type and name.
func (w walker) cover(url string, built map[string]*resource.Resource) {
	for name, r := range built {
		covered := resource.Need{TypeURL: url, Name: name, Kind: resource.Covered}
		var same, others []string
		for _, by := range slices.Sorted(maps.Keys(w.built)) {
			for _, other := range slices.Sorted(maps.Keys(w.built[by])) {
				switch needs := w.built[by][other]; {
				case !slices.Contains(needs.Needs, covered):
				case other == name:
					same = append(same, needs.Version)
				default:
					others = append(others, needs.Version)
				}
			}
		}
		if versions := strings.Join(append(same, others...), "/"); versions != "" {
			built[name] = r.Under(versions)
		}
	}
}

func (w walker) compose(c generate.Composer, base map[string]*resource.Resource) (map[string]*resource.Resource, error) {
	i := slices.IndexFunc(w.types, func(t generate.ResourceType) bool { return t.Generator.TypeURL() == c.PartsURL() })
	parts, err := w.all(w.types[i])
	if err != nil {
		return nil, err
	}
	for name, o := range base {
		var of []*resource.Resource
		for _, p := range parts {
			if rest, ok := strings.CutPrefix(p.Name, name+"/"); ok && !strings.Contains(rest, "/") {
				of = append(of, p)
			}
		}
		slices.SortFunc(of, func(a, b *resource.Resource) int { return strings.Compare(a.Name, b.Name) })
		if base[name], err = c.Compose(o, slices.Values(of)); err != nil {
			return nil, err
		}
	}
	return base, nil
}

// walk builds some resources of a generator from nothing.
func walk(g generate.Generator, view *mesh.View, names iter.Seq[string]) (map[string]*resource.Resource, error) {
	out := map[string]*resource.Resource{}
	for name := range names {
		r, err := generate.Build(g, view, name)
		if err != nil {
			return nil, fmt.Errorf("build %s: %w", name, err)
		}
		if r != nil {
			out[name] = r
		}
	}
	return out, nil
}
