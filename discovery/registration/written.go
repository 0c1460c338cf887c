package registration

import (
	"cmp"
	"slices"
	"strings"

	"github.com/portolan-mesh/portolan/discovery/node"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/health"
)

// decideWritten tells the machines that ask for no registration which entries people have written for
// them. It looks at those that do not know yet, and at all when entries have changed. The caller holds
// mu.
func (r *Registrar) decideWritten(at entriesAt) {
	for s := range r.askers {
		if r.rewritten || !s.decided {
			found, _ := r.entriesOf(s, at)
			s.stand(standingOf(found))
		}
	}
	r.rewritten = false
}

// standingOf says how a machine stands whose entries people have written. It is about the first that is
// withdrawn, else about the first, and names the others.
func standingOf(entries []*config.Config) node.Standing {
	if len(entries) == 0 {
		return node.Standing{}
	}
	rank := func(e *config.Config) int {
		if _, withdrawn := health.Withdrawn(e.Annotations); withdrawn {
			return 0
		}
		return 1
	}
	entries = slices.SortedFunc(slices.Values(entries), func(a, b *config.Config) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.Key().Path(), b.Key().Path()))
	})
	entries = slices.CompactFunc(entries, func(a, b *config.Config) bool { return a.Key() == b.Key() }) // the machine may say an address twice
	first := entries[0]
	out := node.Standing{State: node.Written, Entry: first.Key().String(), Drained: first.Annotations[health.DrainedAnnotation]}
	if first.Annotations[health.RemovedAnnotation] != "" {
		out.State, out.Reason = node.Refused, removedText(first)
		return out
	}
	var others []string
	for _, e := range entries[1:] {
		others = append(others, e.Key().String())
	}
	if len(others) > 0 {
		out.Reason = "beside " + strings.Join(others, ", ")
	}
	return out
}
