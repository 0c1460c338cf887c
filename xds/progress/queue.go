package progress

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/cache/beside"
	"github.com/portolan-mesh/portolan/cache/statuses"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/storage/status"
	"github.com/portolan-mesh/portolan/xds/verdict/index"
)

// inputs are all that the statuses of objects depend on, at one time.
type inputs struct {
	*cache.Snapshot
	facts    *statuses.Reports
	verdicts *index.Index
	usage    usage
}

func inputsOf(at *cache.Snapshot, facts *statuses.Reports, verdicts *index.Index) *inputs {
	return &inputs{at, facts, verdicts, usageOf(facts)}
}

// same says whether other inputs lead to the same statuses.
func (in *inputs) same(o *inputs) bool {
	return in.Content() == o.Content() && in.verdicts == o.verdicts && in.facts.Replicas == o.facts.Replicas &&
		in.facts.Uses == o.facts.Uses && in.facts.Sources == o.facts.Sources && in.facts.Contents == o.facts.Contents
}

// statusQueue knows the objects whose status may need a write. It lasts for one term of the
// leader.
type statusQueue struct {
	last    *inputs              // the inputs of the last follow; nil before
	pending map[string]*pending  // by path
	judged  map[string]time.Time // when new verdicts of an object were last written, for calmTime
	idle    bool                 // the last inputs leave nothing to do
}

func newStatusQueue() *statusQueue {
	return &statusQueue{pending: map[string]*pending{}, judged: map[string]time.Time{}}
}

// pending is an object whose last change has yet to settle, or a deleted one whose status
// still exists.
type pending struct {
	path   string
	since  time.Time // when the change was seen
	wrote  time.Time // when its status was last written
	judged time.Time // when its verdicts last changed
	unused time.Time // since when no proxy uses it; zero if one does
}

// follow adds the objects whose status may have changed since the last inputs, and those
// that proxies reject. The first time, or for another store, it adds the objects whose
// stored status may be wrong.
func (t *statusQueue) follow(in *inputs, now time.Time) {
	last := t.last
	if last == nil || last.Epoch() != in.Epoch() {
		*t = *newStatusQueue()
		last = &inputs{facts: &statuses.Reports{}}
		for path := range in.Statuses().All() {
			if _, exists := in.Configs().Get(path); !exists {
				t.pending[path] = &pending{path: path, since: now}
			}
		}
	} else {
		for change := range pmap.Diff(last.Configs(), in.Configs()) {
			t.pending[change.Key] = &pending{path: change.Key, since: now}
		}
	}
	t.idle = t.idle && in.same(last)
	t.last = in
	for replica := range in.facts.Replicas.Values() {
		for _, problem := range replica.Problems {
			for _, path := range problem.Objects {
				t.add(path, now)
			}
		}
	}
	for change := range index.Changed(last.verdicts, in.verdicts) {
		if p := t.add(change.Key, now); p != nil {
			p.judged = now
		}
	}
	for path := range index.Moved(last.verdicts, in.verdicts) {
		if p := t.add(path, now); p != nil {
			p.judged = now
		}
	}
	maps.DeleteFunc(t.judged, func(_ string, at time.Time) bool { return now.Sub(at) >= calmTime })

	ids := in.changedSince(last)
	known := last.Snapshot != nil && last.usage.all == in.usage.all // then use may have changed only for the objects in ids
	if known && len(ids) == 0 {
		return
	}
	for path, object := range in.Configs().All() {
		id := status.ObjectID(object.Key())
		if ids[id] || !known && !maySkipWrite(in.Statuses().Value(path), object, in.usage.has(id)) {
			t.add(path, now)
		}
	}
}

// add makes an object pending, unless it is already. It returns nil if no such object
// exists.
func (t *statusQueue) add(path string, now time.Time) *pending {
	if _, exists := t.last.Configs().Get(path); !exists {
		return nil
	}
	p := t.pending[path]
	if p == nil {
		p = &pending{path: path, since: now}
		t.pending[path] = p
	}
	return p
}

// changedSince returns the ids of the objects that only one of two inputs has in use. It
// adds the ids of all objects of sources other than the store in a part of a server's
// report that changed.
func (in *inputs) changedSince(last *inputs) map[uint64]bool {
	ids := map[uint64]bool{}
	for change := range pmap.Diff(last.facts.Uses, in.facts.Uses) {
		for _, side := range []*status.Use{change.Old, change.New} {
			if side == nil {
				continue
			}
			for _, id := range side.Objects {
				if in.usage.has(id) != last.usage.has(id) {
					ids[id] = true
				}
			}
		}
	}
	for change := range pmap.Diff(last.facts.Contents, in.facts.Contents) {
		for _, side := range []*status.Content{change.Old, change.New} {
			if side == nil {
				continue
			}
			for _, one := range side.Objects {
				ids[one.ID] = true
			}
		}
	}
	return ids
}

// maySkipWrite says whether the stored status of an object may still be true if the object has
// no verdicts: it is final, it fits whether the object is used, and it has no condition of
// verdicts and no addresses.
func maySkipWrite(stored *status.Report, object *config.Config, used bool) bool {
	before := programmedBefore(stored, object)
	final := before.Status == status.True || before.Reason == reasonNoProxies
	return final && used == (before.Status == status.True) && len(stored.Addresses) == 0 && !slices.ContainsFunc(stored.Conditions, isOfVerdicts)
}

// due returns the writes that are due now, at most maxWrites, oldest change first.
func (t *statusQueue) due(now time.Time) []status.Write {
	if t.idle {
		return nil
	}
	in, idle := t.last, true
	var writes []status.Write
	for _, p := range t.inOrder() {
		if len(writes) >= maxWrites {
			break
		}
		object, stored := in.Configs().Value(p.path), in.Statuses().Value(p.path)
		if object == nil {
			switch {
			case stored == nil:
				delete(t.pending, p.path)
			case stored.Version == "" || !beside.MayHave(in.facts, stored.Key): // else another server may have the object
				writes = append(writes, status.Write{Path: p.path})
			}
			continue
		}
		used, left := t.uses(p, object, stored, now)
		report, settled := makeReport(object, stored, evidence{in.facts, in.verdicts.Of(object.Key()), in.verdicts.Addresses(object.Key()), used || left}, now)
		judged := isJudgedAnew(report, stored)
		switch {
		case sameContent(report, stored):
			if settled && !left {
				delete(t.pending, p.path)
			}
			idle = idle && !left
			continue
		case !settled && (now.Sub(p.wrote) < repeatInterval || now.Sub(p.since) < settleTime && conditionOf(report, status.Rejected) == (status.Condition{})),
			judged && now.Sub(p.judged) < settleTime && now.Sub(t.judged[p.path]) < calmTime:
			idle = false // until it has settled, or its time is up
			continue
		}
		writes = append(writes, status.Write{Path: report.Key.Path(), Report: report})
		if p.wrote = now; judged {
			t.judged[p.path] = now
		}
	}
	t.idle = idle && len(writes) == 0
	return writes
}

// uses says whether a proxy uses an object, or else whether one did until a moment ago.
func (t *statusQueue) uses(p *pending, object *config.Config, stored *status.Report, now time.Time) (used, left bool) {
	if used = t.last.usage.has(status.ObjectID(object.Key())); used {
		p.unused = time.Time{}
		return true, false
	}
	if p.unused.IsZero() {
		p.unused = now
	}
	return false, now.Sub(p.unused) < leaveTime && programmedBefore(stored, object).Status == status.True
}

func (t *statusQueue) inOrder() []*pending {
	return slices.SortedFunc(maps.Values(t.pending), func(a, b *pending) int {
		return cmp.Or(a.since.Compare(b.since), strings.Compare(a.path, b.path))
	})
}

// usage knows the objects in use on any server.
type usage struct {
	parts [status.UseParts][][]uint64 // of all servers
	// all says that a server has proxies and does not report what they use: any object may
	// be in use.
	all bool
}

// usageOf returns what is in use according to facts.
func usageOf(facts *statuses.Reports) (u usage) {
	for r := range facts.Replicas.Values() {
		u.all = u.all || r.Proxies > 0 && !r.ReportsUse
	}
	for use := range facts.Uses.Values() {
		u.parts[use.Part] = append(u.parts[use.Part], use.Objects)
	}
	return u
}

func (u *usage) has(id uint64) bool {
	return u.all || slices.ContainsFunc(u.parts[status.UsePart(id)], func(ids []uint64) bool {
		_, found := slices.BinarySearch(ids, id)
		return found
	})
}
