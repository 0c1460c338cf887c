package mesh

import (
	"iter"
	"slices"
	"strings"

	"github.com/portolan-mesh/portolan/discovery/rows"
	"github.com/portolan-mesh/portolan/storage/host"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/xds/mesh/service"
)

// HostRow is all services of one name.
type HostRow = service.Host

// hosts holds the services by host.
type hosts struct{ tableOf[*HostRow] }

var (
	hostRows = hosts{tableOf[*HostRow]{Hosts}}
	// reversedRows has the same rows by reversed host, so hosts with a common suffix are
	// adjacent.
	reversedRows = tableOf[*HostRow]{reversedHosts}
)

// follow groups the changed services by host. The keys of one host are adjacent.
func (t hosts) follow(from, to *PushContext) {
	if to.mesh.HostConsent {
		t.followOwners(from, to)
		return
	}
	var h host.Name
	var changes []pmap.Change[*ServiceRow]
	for c := range pmap.Diff(from.inputs.Services, to.inputs.Services) {
		if of, _ := rows.SplitKey(c.Key); of != h {
			t.change(to, h, changes)
			h, changes = of, changes[:0]
		}
		changes = append(changes, c)
	}
	t.change(to, h, changes)
}

func (t hosts) change(p *PushContext, h host.Name, changes []pmap.Change[*ServiceRow]) {
	if len(changes) == 0 {
		return
	}
	t.set(p, h, t.rowsOf(p).Value(string(h)).With(h, changes))
}

func (t hosts) set(p *PushContext, h host.Name, row *HostRow) {
	t.put(p, string(h), row, row != nil)
	reversedRows.put(p, reverse(string(h)), row, row != nil)
}

// changed adds the hosts that may stand for changed ones: whether they are services depends on these.
func (t hosts) changed(from, to *PushContext, keys []RowKey) []RowKey {
	keys = t.tableOf.changed(from, to, keys)
	for _, h := range aliasRows.followers(from, to) {
		keys = append(keys, RowKey{t.table, h})
	}
	return keys
}

func (t hosts) answer(v *View, key, listener string) any { return v.seen(host.Name(key), listener) }

// hostsMatching iterates over the hosts that a pattern (or the one name) covers.
func (p *PushContext) hostsMatching(pattern host.Name) iter.Seq[*HostRow] {
	return func(yield func(*HostRow) bool) {
		suffix, wild := strings.CutPrefix(string(pattern), "*")
		if !wild {
			if row, ok := hostRows.rowsOf(p).Get(string(pattern)); ok {
				yield(row)
			}
			return
		}
		for _, row := range reversedRows.rowsOf(p).Prefix(reverse(suffix)) {
			if !yield(row) {
				return
			}
		}
	}
}

func reverse(s string) string {
	b := []byte(s)
	slices.Reverse(b)
	return string(b)
}
