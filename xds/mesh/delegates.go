package mesh

import (
	"iter"
	"slices"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/xds/mesh/routing"
)

// virtualServiceTable holds the VirtualServices by config path, with the routes of their
// delegates merged in. Delegates are rows too; they are bound to no gateway.
type virtualServiceTable struct {
	tableOf[*routing.VirtualService]
}

var (
	virtualServiceRows = virtualServiceTable{tableOf[*routing.VirtualService]{virtualServices}}
	// rootRows holds the VirtualServices that delegate to others, as written.
	rootRows = tableOf[*routing.VirtualService]{roots}
	// delegatorRows maps the path of a delegate to the paths of the roots that delegate
	// to it. The delegate need not exist.
	delegatorRows = groupsOf[bool](delegators)
)

// follow merges only roots that changed, or whose delegates did.
func (t virtualServiceTable) follow(from, to *PushContext) {
	var due []string // roots, some maybe twice
	var changed []string
	eachClaimant(from, to, virtualServicePath, func(c pmap.Change[*config.Config]) {
		var vs *routing.VirtualService
		if c.HasNew {
			vs = routing.New(c.New, to.mesh.GetDefaultVirtualServiceExportTo()).Without(to.refused(c.New))
			vs.Derived = to.Derived(c.Key)
		}
		for _, delegate := range rootRows.rowsOf(from).Value(c.Key).DelegatePaths() {
			delegatorRows.remove(to, delegate, c.Key)
		}
		delegates := vs.DelegatePaths()
		for _, delegate := range delegates {
			delegatorRows.add(to, delegate, c.Key, true)
		}
		rootRows.put(to, c.Key, vs, len(delegates) > 0)
		t.put(to, c.Key, vs, c.HasNew)
		if len(delegates) > 0 {
			due = append(due, c.Key)
		}
		if t.rowsOf(from).Value(c.Key).IsDelegate() || vs.IsDelegate() {
			changed = append(changed, c.Key)
		}
	})
	for _, delegate := range changed {
		due = slices.AppendSeq(due, delegatorRows.rowsOf(to).Value(delegate).Keys())
	}
	slices.Sort(due)
	for _, path := range slices.Compact(due) {
		t.put(to, path, rootRows.rowsOf(to).Value(path).Merge(t.rowsOf(to).Value), true)
	}
}

// Delegators iterates over the VirtualServices that delegate to the one at a path, in the
// order of their own paths.
func (p *PushContext) Delegators(path string) iter.Seq[*routing.VirtualService] {
	return func(yield func(*routing.VirtualService) bool) {
		for root := range delegatorRows.rowsOf(p).Value(path).Keys() {
			if !yield(p.VirtualService(root)) {
				return
			}
		}
	}
}

// Delegates iterates over the paths of objects for which the set of VirtualServices that
// delegate to them changed.
func (d Delta) Delegates() iter.Seq[string] {
	return func(yield func(string) bool) {
		for c := range delegatorRows.diff(d.from, d.to) {
			if !yield(c.Key) {
				return
			}
		}
	}
}
