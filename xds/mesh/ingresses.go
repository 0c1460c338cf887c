package mesh

import (
	"cmp"
	"hash/fnv"
	"iter"
	"slices"
	"strconv"
	"strings"

	"github.com/portolan-mesh/portolan/cache/kube/ingress"
	"github.com/portolan-mesh/portolan/discovery/rows"
	"github.com/portolan-mesh/portolan/storage/claim"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/host"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// derivedTable holds the Gateways and VirtualServices that are derived from Ingresses, by config
// path. The tables of both kinds follow it as they follow the objects that users wrote.
type derivedTable struct{ tableOf[*ingress.Derived] }

var (
	derivedRows = derivedTable{tableOf[*ingress.Derived]{derivedObjects}}
	// ingressRows holds the Ingresses in effect, by config path, and ingressHostRows those with
	// routes for a host, by host.
	ingressRows     = tableOf[*config.Config]{ingressObjects}
	ingressHostRows = groupsOf[*config.Config](ingressHosts)
	// ingressNameRows has the hosts whose VirtualService would have a path. Nearly always it is one.
	ingressNameRows = groupsOf[bool](ingressNames)
	// ingressNeedRows has the paths of Ingresses by what they depend on: see classNeed and portsNeed.
	ingressNeedRows = groupsOf[bool](ingressNeeds)
)

// classNeed and portsNeed are the keys of what an Ingress depends on: an IngressClass, and the named
// ports of the service of a host.
func classNeed(name string) string { return "class " + name }
func portsNeed(host string) string { return "ports " + host }

func (t derivedTable) follow(from, to *PushContext) {
	due := t.dueIngresses(from, to)
	if len(due) == 0 {
		return
	}
	hosts := map[string]bool{}
	for _, path := range due {
		old, curr := from.inputs.Configs.Configs().Value(path), to.inputs.Configs.Configs().Value(path)
		for _, need := range needsOf(old) {
			ingressNeedRows.remove(to, need, path)
		}
		for _, need := range needsOf(curr) {
			ingressNeedRows.add(to, need, path, true)
		}
		was := ingressRows.rowsOf(from).Value(path)
		if curr != nil {
			if _, serves := to.ServesIngress(curr); !serves {
				curr = nil
			}
		}
		ingressRows.put(to, path, curr, curr != nil)
		if was != nil {
			for _, h := range ingress.Hosts(was) {
				ingressHostRows.remove(to, h, path)
				hosts[h] = true
			}
			t.put(to, ingress.GatewayKey(was, from.mesh.GetRootNamespace()).Path(), nil, false)
		}
		if curr != nil {
			for _, h := range ingress.Hosts(curr) {
				ingressHostRows.add(to, h, path, curr)
				hosts[h] = true
			}
			t.set(from, to, ingress.Gateway(curr, to.ingressOptions()))
		}
	}
	t.followHosts(from, to, hosts)
}

// dueIngresses returns the paths of the Ingresses to look at again, in order.
func (t derivedTable) dueIngresses(from, to *PushContext) (due []string) {
	eachClaimant(from, to, ingressPath, func(c pmap.Change[*config.Config]) { due = append(due, c.Key) })
	needs := ingressNeedRows.rowsOf(from)
	wake := func(need string) { due = slices.AppendSeq(due, needs.Value(need).Keys()) }
	if needs.Len() > 0 {
		eachObject(from, to, ingressClassPath, func(c pmap.Change[*config.Config]) {
			for _, class := range []*config.Config{c.Old, c.New} {
				if class != nil {
					wake(classNeed(class.Name))
				}
			}
		})
		for c := range pmap.Diff(from.inputs.Services, to.inputs.Services) {
			h, _ := rows.SplitKey(c.Key)
			wake(portsNeed(string(h)))
		}
	}
	slices.Sort(due)
	return slices.Compact(due)
}

func needsOf(object *config.Config) (needs []string) {
	if object == nil {
		return nil
	}
	if class := ingress.ClassOf(object); class != "" {
		needs = append(needs, classNeed(class))
	}
	for _, h := range ingress.Services(object) {
		needs = append(needs, portsNeed(h))
	}
	return needs
}

// followHosts derives the VirtualServices of some hosts.
func (t derivedTable) followHosts(from, to *PushContext, hosts map[string]bool) {
	paths := map[string]bool{}
	for h := range hosts {
		if old := from.ingressesOf(h); len(old) > 0 {
			path := ingress.VirtualServiceKey(h, old[0]).Path()
			ingressNameRows.remove(to, path, h)
			paths[path] = true
		}
	}
	for h := range hosts {
		if curr := to.ingressesOf(h); len(curr) > 0 {
			path := ingress.VirtualServiceKey(h, curr[0]).Path()
			ingressNameRows.add(to, path, h, true)
			paths[path] = true
		}
	}
	for path := range paths {
		i := 0
		for h := range ingressNameRows.rowsOf(from).Value(path).Keys() {
			t.put(to, namesake(from.ingressesOf(h)[0], h, i).Path(), nil, false)
			i++
		}
	}
	for path := range paths {
		i := 0
		for h := range ingressNameRows.rowsOf(to).Value(path).Keys() {
			all := to.ingressesOf(h)
			t.set(from, to, ingress.VirtualService(h, all, namesake(all[0], h, i), to.ingressOptions()))
			i++
		}
	}
}

// namesake returns the key of the VirtualService of a host that is number i among those with the same
// name. All but the first get a name of their own.
func namesake(first *config.Config, h string, i int) config.Key {
	key := ingress.VirtualServiceKey(h, first)
	if i > 0 {
		sum := fnv.New32a()
		_, _ = sum.Write([]byte(h))
		key.Name += "-" + strconv.FormatUint(uint64(sum.Sum32()), 36)
	}
	return key
}

// set puts what was derived, nil for nothing. It is the row of from if that is equal.
func (t derivedTable) set(from, to *PushContext, d *ingress.Derived) {
	if d == nil {
		return
	}
	path := d.Object.Key().Path()
	if old := t.rowsOf(from).Value(path); old.Equal(d) {
		d = old
	}
	t.put(to, path, d, true)
}

// ServesIngress says whether an Ingress has an effect, and if not, why: see ingress.Serves.
func (p *PushContext) ServesIngress(object *config.Config) (why string, ok bool) {
	class := p.inputs.Configs.Get(config.Key{Kind: schema.IngressClass, Name: ingress.ClassOf(object)})
	return ingress.Serves(p.mesh.MeshConfig, object, class)
}

// ingressesOf returns the Ingresses in effect that have routes for a host, the oldest first.
func (p *PushContext) ingressesOf(h string) []*config.Config {
	return slices.SortedFunc(ingressHostRows.rowsOf(p).Value(h).Values(), config.Compare)
}

func (p *PushContext) ingressOptions() ingress.Options {
	return ingress.Options{Root: p.mesh.GetRootNamespace(), Mesh: p.mesh.MeshConfig, Port: p.NamedPort, Refused: p.refusesIngress}
}

// refusesIngress says whether an Ingress has no effect for a host, since another namespace owns it.
func (p *PushContext) refusesIngress(object *config.Config, h string) bool {
	o := ownerRows.rowsOf(p).Value(h)
	return o != nil && !p.permits(o, object, claim.Claim{Host: host.Name(h)})
}

// NamedPort returns the number of a port of a service by its name: of the service in the namespace
// that the host names, else of the oldest.
func (p *PushContext) NamedPort(h, name string) (int, bool) {
	_, rest, _ := strings.Cut(h, ".")
	namespace, _, _ := strings.Cut(rest, ".")
	all := slices.SortedFunc(p.servicesOf(host.Name(h)), func(a, b *ServiceRow) int {
		return cmp.Or(-compareBool(a.Namespace == namespace, b.Namespace == namespace), rows.Compare(a, b))
	})
	for _, s := range all {
		for _, port := range s.Service().Ports {
			if port.Name == name {
				return port.Number, true
			}
		}
	}
	return 0, false
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

func (p *PushContext) servicesOf(h host.Name) iter.Seq[*ServiceRow] {
	return func(yield func(*ServiceRow) bool) {
		for _, s := range p.inputs.Services.Prefix(rows.Key(h, "")) {
			if !yield(s) {
				return
			}
		}
	}
}

// objectAt returns the object of a path: the one that users wrote, else a derived one, else nil.
func (p *PushContext) objectAt(path string) *config.Config {
	if object := p.Inputs().Configs.Configs().Value(path); object != nil {
		return object
	}
	if d := derivedRows.rowsOf(p).Value(path); d != nil {
		return d.Object
	}
	return nil
}

// Derived returns what is derived from Ingresses at a path, nil for none: users may have written an
// object there, which goes before it.
func (p *PushContext) Derived(path string) *ingress.Derived {
	d := derivedRows.rowsOf(p).Value(path)
	if d == nil || p.inputs.Configs.Configs().Value(path) != nil {
		return nil
	}
	return d
}

// EffectiveChanges iterates over the objects in effect that differ from those of another context, which
// may be nil: those that users wrote, and those derived from Ingresses where users wrote none.
func (p *PushContext) EffectiveChanges(from *PushContext) iter.Seq[pmap.Change[*config.Config]] {
	return func(yield func(pmap.Change[*config.Config]) bool) {
		if from == nil {
			from = &PushContext{}
		}
		for c := range pmap.Diff(from.Inputs().Configs.Configs(), p.Inputs().Configs.Configs()) {
			if !yield(changeOf(c.Key, from.objectAt(c.Key), p.objectAt(c.Key))) {
				return
			}
		}
		for c := range derivedChanges(from, p, "") {
			if !yield(c) {
				return
			}
		}
	}
}

// derivedChanges iterates over the derived objects that changed and whose path begins with path, but
// those at which users have, or had, an object of their own.
func derivedChanges(from, to *PushContext, path string) iter.Seq[pmap.Change[*config.Config]] {
	return func(yield func(pmap.Change[*config.Config]) bool) {
		written := func(p *PushContext, key string) bool { return p.Inputs().Configs.Configs().Value(key) != nil }
		for c := range derivedRows.diff(from, to) {
			if !strings.HasPrefix(c.Key, path) || written(from, c.Key) || written(to, c.Key) {
				continue
			}
			if !yield(changeOf(c.Key, from.objectAt(c.Key), to.objectAt(c.Key))) {
				return
			}
		}
	}
}

func changeOf(key string, old, curr *config.Config) pmap.Change[*config.Config] {
	return pmap.Change[*config.Config]{Key: key, Old: old, New: curr, HasOld: old != nil, HasNew: curr != nil}
}
