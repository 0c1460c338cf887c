package desired

import (
	"cmp"
	"slices"
	"strings"

	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// coverage knows, for one type, which resources of other types are part of the versions of
// its resources. The version of endpoints covers the version of their cluster, so a client
// that gets a changed cluster lacks its endpoints again. The cluster declares that by a need
// of kind Covered. Types of covered resources precede this one in the order of sending.
type coverage struct {
	// same are the types of covered resources that have the name of the covering one, in
	// order.
	same []*groupType
	// others are, by the name of the covering resource, the covered ones of other names,
	// in order.
	others map[string][]covered
	// uncertain are the names whose covered resources have changed, so their versions may
	// too.
	uncertain []string
	// needed counts, by name, the resources that need a secret, if this is a type of
	// secrets.
	needed pmap.Map[int]
}

// covered is a resource whose version another one covers.
type covered struct {
	typ  *groupType
	name string
}

// noteReplaced notes for other types that a resource replaces another; either may be nil.
func (g *Group) noteReplaced(t *groupType, before, after *resource.Resource) {
	if before == after {
		return
	}
	g.countNeeds(after, 1)
	g.countNeeds(before, -1) // afterwards, so that what stays needed is never without need
	g.eachCovering(t, before, func(by *groupType, name string) {
		by.uncertain = append(by.uncertain, name)
		if name != before.Name {
			by.others[name] = slices.DeleteFunc(by.others[name], func(c covered) bool { return c == covered{t, before.Name} })
		}
	})
	g.eachCovering(t, after, func(by *groupType, name string) {
		by.uncertain = append(by.uncertain, name)
		switch {
		case name != after.Name:
			by.cover(name, covered{t, after.Name})
		case !slices.Contains(by.same, t):
			by.same = append(by.same, t)
			slices.SortFunc(by.same, func(a, b *groupType) int { return strings.Compare(a.url, b.url) })
		}
	})
}

// countNeeds adds by to the counts of the secrets that a resource needs; nil needs none.
func (g *Group) countNeeds(r *resource.Resource, by int) {
	if r == nil {
		return
	}
	for _, n := range r.Needs {
		t := g.byURL[n.TypeURL]
		if n.Kind != resource.Once || t == nil {
			continue
		}
		if is := t.needed.Value(n.Name) + by; is == 0 {
			t.needed = t.needed.Delete(n.Name)
		} else {
			t.needed = t.needed.Set(n.Name, is)
		}
	}
}

// eachCovering calls do with the resources, by type and name, whose versions cover the
// version of r. A type that is not served covers nothing.
func (g *Group) eachCovering(t *groupType, r *resource.Resource, do func(by *groupType, name string)) {
	if r == nil {
		return
	}
	for _, n := range r.Needs {
		if by := g.byURL[n.TypeURL]; n.Kind == resource.Covered && by != nil && by != t {
			do(by, n.Name)
		}
	}
}

// uncoverAll forgets all coverage; the build of everything notes it anew.
func (g *Group) uncoverAll() {
	for _, t := range g.types {
		t.coverage = coverage{}
	}
}

// cover notes that the resource of a name covers another one, of another name.
func (c *coverage) cover(name string, of covered) {
	if c.others == nil {
		c.others = map[string][]covered{}
	}
	at, _ := slices.BinarySearchFunc(c.others[name], of, func(a, b covered) int {
		return cmp.Or(strings.Compare(a.typ.url, b.typ.url), strings.Compare(a.name, b.name))
	})
	c.others[name] = slices.Insert(c.others[name], at, of)
}

// includedVersions joins the versions that the version of a resource covers; empty for none.
func (t *groupType) includedVersions(name string) string {
	var versions string
	add := func(version string) {
		if versions == "" {
			versions = version
		} else {
			versions += "/" + version
		}
	}
	for _, typ := range t.same {
		if r := typ.set.Value(name); r != nil && slices.Contains(r.Needs, resource.Need{TypeURL: t.url, Name: name, Kind: resource.Covered}) {
			add(r.Version)
		}
	}
	for _, c := range t.others[name] {
		add(c.typ.set.Value(c.name).Version)
	}
	return versions
}
