package mesh

import (
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/portolan-mesh/portolan/storage/host"
	"github.com/portolan-mesh/portolan/xds/mesh/class"
	"github.com/portolan-mesh/portolan/xds/mesh/sidecar"
)

// Alias is a host that stands for another of the mesh.
type Alias struct {
	// Service is what a registry knows of the alias. No client calls it.
	Service *ServiceRow
	// Of is the host that it stands for, at the end of a chain of aliases. It is empty for an alias that
	// leads back to itself: clients call nothing by its name.
	Of host.Name
}

// aliases maps a host to the hosts whose services have it as their external name.
type aliases struct{ groups[bool] }

var aliasRows = aliases{groupsOf[bool](Aliases)}

func (t aliases) follow(from, to *PushContext) {
	for c := range hostRows.diff(from, to) {
		before, after := c.Old.ExternalNames(), c.New.ExternalNames()
		for _, name := range before {
			if !slices.Contains(after, name) {
				t.remove(to, string(name), c.Key)
			}
		}
		for _, name := range after {
			if !slices.Contains(before, name) {
				t.add(to, string(name), c.Key, true)
			}
		}
	}
}

// changed has the hosts that a changed host may stand for, that host itself, and those that may stand for it:
// one that is an alias no longer has the aliases that led on through it.
func (t aliases) changed(from, to *PushContext, keys []RowKey) []RowKey {
	if t.isEmpty(from) && t.isEmpty(to) {
		return keys
	}
	found, below := map[string]bool{}, map[string]bool{}
	for c := range hostRows.diff(from, to) {
		if c.New.SeenAs(c.Old) {
			continue
		}
		for _, p := range []*PushContext{from, to} {
			found[c.Key] = true
			t.under(p, c.Key, below)
			reach(found, c.Key, func(h string) iter.Seq[string] {
				return func(yield func(string) bool) {
					for _, name := range p.Host(host.Name(h)).ExternalNames() {
						if !yield(string(name)) {
							return
						}
					}
				}
			})
		}
	}
	maps.Copy(found, below)
	for _, h := range slices.Sorted(maps.Keys(found)) {
		keys = append(keys, RowKey{t.table, h})
	}
	return keys
}

func (t aliases) isEmpty(p *PushContext) bool { return t.rowsOf(p).Len() == 0 }

// under adds to found the hosts that may stand for a host.
func (t aliases) under(p *PushContext, h string, found map[string]bool) {
	reach(found, h, func(h string) iter.Seq[string] { return t.rowsOf(p).Value(h).Keys() })
}

// reach adds to found all that next leads to from h.
func reach(found map[string]bool, h string, next func(string) iter.Seq[string]) {
	for other := range next(h) {
		if !found[other] {
			found[other] = true
			reach(found, other, next)
		}
	}
}

// followers returns, in order, the unchanged hosts that may stand for changed ones. They may have begun or
// ceased to be services of their own.
func (t aliases) followers(from, to *PushContext) []string {
	if t.isEmpty(from) && t.isEmpty(to) {
		return nil
	}
	found := map[string]bool{}
	for c := range hostRows.diff(from, to) {
		if !c.New.SeenAs(c.Old) {
			t.under(from, c.Key, found)
			t.under(to, c.Key, found)
		}
	}
	maps.DeleteFunc(found, func(h string, _ bool) bool {
		return hostRows.rowsOf(from).Value(h) != hostRows.rowsOf(to).Value(h)
	})
	return slices.Sorted(maps.Keys(found))
}

// answer has the aliases of a host that the class sees through a listener.
func (t aliases) answer(v *View, key, listener string) any {
	found := map[string]bool{}
	t.under(v.push, key, found)
	maps.DeleteFunc(found, func(h string, _ bool) bool {
		a, alias := v.seen(host.Name(h), listener).(Alias)
		return !alias || string(a.Of) != key
	})
	return strings.Join(slices.Sorted(maps.Keys(found)), class.Separator)
}

// AliasesAt returns, in order, the hosts that stand for a host, as the proxy sees them through an egress
// listener.
func (v *View) AliasesAt(l EgressListener, h host.Name) []host.Name {
	all := v.ask(Aliases, string(h), v.listenerArgs(l.Index)).(string)
	if all == "" {
		return nil
	}
	var out []host.Name
	for name := range strings.SplitSeq(all, class.Separator) {
		out = append(out, host.Name(name))
	}
	return out
}

// Alias says that a host is an alias which the proxy sees through any of its egress listeners. Service then
// returns nil for it.
func (v *View) Alias(h host.Name) (Alias, bool) {
	a, ok := v.ofHost(h, viaAny).(Alias)
	return a, ok
}

// AliasAt is like Alias, through one egress listener.
func (v *View) AliasAt(l EgressListener, h host.Name) (Alias, bool) {
	a, ok := v.ofHost(h, v.listenerArgs(l.Index)).(Alias)
	return a, ok
}

// Reached returns the service that the proxy reaches by a host: its own, or the one that it is an alias of;
// nil for none.
func (v *View) Reached(h host.Name) *ServiceRow {
	if alias, ok := v.Alias(h); ok {
		h = alias.Of
	}
	return v.Service(h)
}

// AliasesOf returns, in order, the hosts that stand for a host to clients of their own namespaces.
func (p *PushContext) AliasesOf(h host.Name) []host.Name {
	found := map[string]bool{}
	aliasRows.under(p, string(h), found)
	var out []host.Name
	for _, name := range slices.Sorted(maps.Keys(found)) {
		if slices.ContainsFunc(p.Host(host.Name(name)).Services, func(s *ServiceRow) bool {
			of, alias := p.AliasOf(s, s.Namespace)
			return alias && of == h
		}) {
			out = append(out, host.Name(name))
		}
	}
	return out
}

// AliasOf returns the host that a service stands for to clients of a namespace, as Alias.Of; false for a
// service of its own. It goes by what is exported to the namespace: if a Sidecar imports an alias without
// the service, the alias leads nowhere.
// https://github.com/istio/istio/blob/1.28.0/pilot/pkg/model/push_context.go resolveServiceAliases
func (p *PushContext) AliasOf(s *ServiceRow, namespace string) (of host.Name, alias bool) {
	var seen []host.Name
	for at := s; ; {
		next := p.exported(at.ExternalName(), namespace)
		if next == nil {
			return at.Hostname, at != s
		}
		if slices.Contains(seen, next.Hostname) {
			return "", true
		}
		seen = append(seen, next.Hostname)
		at = next
	}
}

// exported returns the service of a host that a namespace sees if no Sidecar restricts it, aliases too; nil
// for none.
func (p *PushContext) exported(h host.Name, namespace string) *ServiceRow {
	if row := p.Host(h); h != "" && row != nil {
		return row.Pick(sidecar.Scope{Namespace: namespace}, nil)
	}
	return nil
}
