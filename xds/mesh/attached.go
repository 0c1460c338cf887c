package mesh

import (
	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/labels"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/xds/mesh/class"
)

// attachment is what attaches to proxies by their labels: an object that has a selector,
// or a selector or trait that rules name.
type attachment struct {
	selector labels.Instance
	object   *config.Config // nil for what rules name
}

// attaching says how a kind attaches.
type attaching struct {
	// routers and sidecars say which proxies it attaches to.
	routers, sidecars bool
	// follow adds and removes what changed between two contexts.
	follow func(t attachmentTable, from, to *PushContext)
	// choose returns the names of what attaches to a workload, in order. Nil chooses all
	// that match.
	choose func(p *PushContext, who attachedTo) []string
}

// attachedTo is a proxy to which something may attach.
type attachedTo struct {
	*discovery.Proxy
	workload discovery.Place
	// attached has what attaches of the kinds before.
	attached class.Attached
}

// attachings has what attaches, by kind.
var attachings = map[class.Kind]attaching{
	class.Trait:   {routers: true, sidecars: true, follow: attachmentTable.followTraits, choose: (*PushContext).traitsAt},
	class.Source:  {routers: true, sidecars: true, follow: attachmentTable.followSources},
	class.Client:  {routers: true, sidecars: true, follow: attachmentTable.followClients},
	class.Sidecar: {sidecars: true, follow: attachmentTable.followSidecars, choose: (*PushContext).sidecarFor},
	class.Gateway: {routers: true, follow: attachmentTable.followGateways},

	class.Telemetry: {routers: true, sidecars: true, follow: attachmentTable.followTelemetries, choose: (*PushContext).telemetriesFor},
	class.Patch:     {routers: true, sidecars: true, follow: attachmentTable.followPatches, choose: (*PushContext).patchesFor},
	class.Plugin:    {routers: true, sidecars: true, follow: attachmentTable.followPlugins, choose: (*PushContext).pluginsFor},
}

// attachmentTable holds what attaches, by kind and namespace, and there by name. A row
// changes if an object does, or if a selector or trait appears or disappears.
type attachmentTable struct{ groups[*attachment] }

var (
	attachmentRows = attachmentTable{groupsOf[*attachment](attachments)}
	// namingRows counts the rules that name a selector or trait, by its row and name.
	namingRows = groupsOf[int](namings)
)

// attachmentKey is the key of the row of a kind and a namespace.
func attachmentKey(kind class.Kind, namespace string) string {
	if kind.Everywhere() {
		namespace = ""
	}
	return string(rune(kind)) + namespace
}

func (t attachmentTable) follow(from, to *PushContext) {
	for kind := class.FirstKind; kind <= class.LastKind; kind++ {
		attachings[kind].follow(t, from, to)
	}
}

// followObjects follows objects that have a selector themselves.
func (t attachmentTable) followObjects(from, to *PushContext, kind class.Kind, path string, selector func(*config.Config) labels.Instance) {
	eachClaimant(from, to, path, func(c pmap.Change[*config.Config]) {
		if c.HasNew {
			t.add(to, attachmentKey(kind, c.New.Namespace), c.Key, &attachment{selector(c.New), c.New})
		} else {
			t.remove(to, attachmentKey(kind, c.Old.Namespace), c.Key)
		}
	})
}

// count adds by to the number of rules that name something.
func (t attachmentTable) count(p *PushContext, row, name string, selector labels.Instance, by int) {
	was := namingRows.rowsOf(p).Value(row).Value(name)
	switch n := was + by; {
	case n == 0:
		namingRows.remove(p, row, name)
		t.remove(p, row, name)
		return
	case was == 0:
		t.add(p, row, name, &attachment{selector: selector})
		fallthrough
	default:
		namingRows.add(p, row, name, n)
	}
}

// attachmentRow is what attaches of one kind from one namespace, by name.
type attachmentRow struct{ pmap.Map[*attachment] }

func (p *PushContext) attachmentsIn(kind class.Kind, namespace string) attachmentRow {
	return attachmentRow{attachmentRows.rowsOf(p).Value(attachmentKey(kind, namespace))}
}

// oldest returns the oldest object that meets a condition, nil for none.
func (r attachmentRow) oldest(meets func(*attachment) bool) *config.Config {
	var out *config.Config
	for a := range r.Values() {
		if meets(a) && (out == nil || config.Compare(a.object, out) < 0) {
			out = a.object
		}
	}
	return out
}

// attached returns what attaches to a proxy.
func (p *PushContext) attached(proxy *discovery.Proxy) class.Attached {
	var out class.Attached
	workload := p.placeOf(proxy)
	for kind := class.FirstKind; kind <= class.LastKind; kind++ {
		switch a := attachings[kind]; {
		case !a.concerns(proxy):
		case a.choose != nil:
			out = out.Add(kind, a.choose(p, attachedTo{proxy, workload, out})...)
		default:
			out = out.Add(kind, p.matching(kind, proxy.Namespace, workload.Labels)...)
		}
	}
	return out
}

func (a attaching) concerns(proxy *discovery.Proxy) bool {
	return a.routers && proxy.Type == discovery.Router || a.sidecars && proxy.Type != discovery.Router
}

// matching returns the names of all of a kind in a namespace that match labels, in order.
func (p *PushContext) matching(kind class.Kind, namespace string, workload labels.Instance) []string {
	var out []string
	for name, a := range p.attachmentsIn(kind, namespace).All() {
		if a.selector.SubsetOf(workload) {
			out = append(out, name)
		}
	}
	return out
}

// attachmentsChanged says whether anything that may attach to a proxy differs from an
// earlier context.
func (p *PushContext) attachmentsChanged(from *PushContext, proxy *discovery.Proxy) bool {
	before, after := attachmentRows.rowsOf(from), attachmentRows.rowsOf(p)
	if before == after {
		return false
	}
	for kind, a := range attachings {
		for _, namespace := range []string{proxy.Namespace, p.mesh.GetRootNamespace()} {
			key := attachmentKey(kind, namespace)
			if a.concerns(proxy) && before.Value(key) != after.Value(key) {
				return true
			}
		}
	}
	return false
}
