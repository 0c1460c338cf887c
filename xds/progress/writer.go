package progress

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/cache/beside"
	"github.com/portolan-mesh/portolan/cache/statuses"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/etcd"
	"github.com/portolan-mesh/portolan/storage/etcd/election"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/storage/pulse"
	"github.com/portolan-mesh/portolan/storage/status"
	"github.com/portolan-mesh/portolan/xds/verdict/index"
)

const (
	// maxWrites bounds the statuses that one look writes.
	maxWrites = 4 * etcd.SideBatch
	// settleTime is how long a change may take before its progress is written. Most changes
	// take less: their only status says that they have arrived.
	settleTime = 3 * time.Second
	// repeatInterval is how often the progress of a slow change is written again.
	repeatInterval = 5 * time.Second
	// forgetAfter is how long a proxy is known after it left.
	forgetAfter = 24 * time.Hour
	// leaveTime is how long no proxy uses an object that one used, before this is written:
	// proxies that start again, or move to another server, move no status.
	leaveTime = time.Minute
	// calmTime is how long verdicts that change again and again are left unwritten.
	calmTime = 30 * time.Second
)

// Writer writes the statuses of objects. It runs on one server at a time.
type Writer struct {
	Store    *etcd.Store
	Statuses *statuses.Cache
	// Verdicts returns the verdicts of now, nil as long as there are none.
	Verdicts func() *index.Index
	Logger   *slog.Logger
}

// Run writes until ctx ends, or until another server leads.
func (w *Writer) Run(ctx context.Context, leader *election.Leader) error {
	store := w.Store.Fenced(leader.Client())
	t := newStatusQueue()
	timer := time.NewTimer(pulse.Until(interval))
	defer timer.Stop()
	for {
		if err := w.writeDue(ctx, store, t); err != nil {
			if ctx.Err() != nil || errors.Is(err, election.ErrNotLeader) {
				return nil
			}
			w.Logger.Warn("statuses of objects were not written, it will be tried again", "err", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
			timer.Reset(pulse.Until(interval))
		}
	}
}

// writeDue writes the statuses that are due now.
func (w *Writer) writeDue(ctx context.Context, store *etcd.Store, t *statusQueue) error {
	facts, _ := w.Statuses.Facts()
	snapshot, verdicts := w.Statuses.Snapshot(), w.Verdicts()
	if facts == nil || snapshot == nil || verdicts == nil {
		return nil
	}
	now := time.Now()
	t.follow(snapshot, now)
	t.addRejected(snapshot, facts, now)
	t.addJudged(snapshot, verdicts, now)
	t.addReported(snapshot, facts, now)
	writes, err := t.due(snapshot, facts, now)
	if err != nil {
		return err
	}
	writes = append(writes, expireProxies(facts, now)...)
	for batch := range slices.Chunk(writes, etcd.SideBatch) {
		if _, err := store.WriteSide(ctx, batch); err != nil {
			return err
		}
	}
	return nil
}

// expireProxies returns the writes that forget proxies which left long ago, and those that
// mark the proxies of a stopped server as gone.
func expireProxies(facts *statuses.Facts, now time.Time) []etcd.SideWrite {
	var writes []etcd.SideWrite
	gone := map[string]bool{} // by server
	for p := range facts.Proxies.Values() {
		if _, asked := gone[p.Replica]; !asked {
			gone[p.Replica] = p.Replica != "" && liveServer(facts, p.Replica) == nil
		}
		var value []byte
		switch {
		case p.Replica == "" && now.Sub(p.Seen) > forgetAfter:
		case gone[p.Replica]:
			var err error
			if value, err = etcd.EncodeProxy(parted(p, now)); err != nil {
				continue // a node id that cannot be encoded was never stored
			}
		default:
			continue
		}
		write := etcd.SideWrite{Key: etcd.ProxyKey(p.Node), Value: value, Revision: p.Revision}
		if writes = append(writes, write); len(writes) == etcd.SideBatch {
			break // the rest at the next look
		}
	}
	return writes
}

// statusQueue knows the objects whose status may need a write. It lasts for one term of the
// leader.
type statusQueue struct {
	followed *cache.Snapshot     // the snapshot that was followed last
	pending  map[string]*pending // by path
	verdicts *index.Index
	usage    *usage                    // nil before the first look
	contents pmap.Map[*status.Content] // of the last look
	judged   map[string]time.Time      // when new verdicts of an object were last written, for calmTime

	lastInput dueInput // what due looked at when nothing was left to do
	idle      bool
}

func newStatusQueue() *statusQueue {
	return &statusQueue{pending: map[string]*pending{}, judged: map[string]time.Time{}}
}

// dueInput is the input of due.
type dueInput struct {
	content  cache.Content
	replicas pmap.Map[*status.Replica]
	verdicts *index.Index
	usage    *usage
	sources  pmap.Map[*status.Sources]
	contents pmap.Map[*status.Content]
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

// follow adds the objects that changed since the last look, and the deleted ones. The first
// look adds all objects whose status is not final, and the statuses without an object.
func (t *statusQueue) follow(to *cache.Snapshot, now time.Time) {
	from := t.followed
	if from.Epoch() != to.Epoch() {
		from, t.pending = nil, map[string]*pending{}
	}
	for change := range pmap.Diff(from.Configs(), to.Configs()) {
		if from != nil || !isFinal(change.New, to.Statuses().Value(change.Key)) {
			t.pending[change.Key] = &pending{path: change.Key, since: now}
		}
	}
	if from == nil {
		for path := range to.Statuses().All() {
			if _, exists := to.Configs().Get(path); !exists {
				t.pending[path] = &pending{path: path, since: now}
			}
		}
	}
	t.followed = to
}

// isFinal says whether the status of an object is final for its last write.
func isFinal(object *config.Config, said *status.Report) bool {
	c := programmedBefore(said, object)
	return c.Status == status.True || c.Reason == reasonNoProxies
}

// add adds an object that exists, unless it is pending already.
func (t *statusQueue) add(to *cache.Snapshot, path string, now time.Time) *pending {
	if _, exists := to.Configs().Get(path); !exists {
		return nil
	}
	p := t.pending[path]
	if p == nil {
		p = &pending{path: path, since: now}
		t.pending[path] = p
	}
	return p
}

// addRejected adds the objects that proxies reject, whenever they last changed.
func (t *statusQueue) addRejected(to *cache.Snapshot, facts *statuses.Facts, now time.Time) {
	for replica := range facts.Replicas.Values() {
		for _, problem := range replica.Problems {
			for _, path := range problem.Objects {
				t.add(to, path, now)
			}
		}
	}
}

// addJudged adds the objects whose verdicts changed since the last look. The first look
// also adds those whose status tells of verdicts.
func (t *statusQueue) addJudged(to *cache.Snapshot, verdicts *index.Index, now time.Time) {
	for change := range index.Changed(t.verdicts, verdicts) {
		if p := t.add(to, change.Key, now); p != nil {
			p.judged = now
		}
	}
	if t.verdicts == nil {
		for path, said := range to.Statuses().All() {
			if slices.ContainsFunc(said.Conditions, isOfVerdicts) {
				t.add(to, path, now)
			}
		}
	}
	t.verdicts = verdicts
	maps.DeleteFunc(t.judged, func(_ string, at time.Time) bool { return now.Sub(at) >= calmTime })
}

// addReported adds the objects that proxies use and did not, those that they do not use any
// more, and those of other sources than the store that servers have come to have otherwise.
// The first look adds those whose status says otherwise.
func (t *statusQueue) addReported(to *cache.Snapshot, facts *statuses.Facts, now time.Time) {
	lastUsage, lastContents := t.usage, t.contents
	t.usage, t.contents = usageOf(facts, lastUsage), facts.Contents
	ids, known := t.usage.changedSince(lastUsage)
	for change := range pmap.Diff(lastContents, t.contents) {
		for _, side := range []*status.Content{change.Old, change.New} {
			if side == nil {
				continue
			}
			for _, one := range side.Objects {
				ids[one.ID] = true
			}
		}
	}
	if known && len(ids) == 0 {
		return
	}
	for path, object := range to.Configs().All() {
		id := status.ObjectID(object.Key())
		changed := ids[id]
		if said := to.Statuses().Value(path); !known && isFinal(object, said) {
			changed = changed || t.usage.hasID(id) != (programmedBefore(said, object).Status == status.True)
		}
		if changed {
			t.add(to, path, now)
		}
	}
}

// due returns the writes that are due now, at most maxWrites, oldest change first.
func (t *statusQueue) due(at *cache.Snapshot, facts *statuses.Facts, now time.Time) ([]etcd.SideWrite, error) {
	looked := dueInput{at.Content(), facts.Replicas, t.verdicts, t.usage, facts.Sources, facts.Contents}
	if t.idle && looked == t.lastInput {
		return nil, nil
	}
	t.lastInput, t.idle = looked, true
	var writes []etcd.SideWrite
	for _, p := range t.inOrder() {
		if len(writes) >= maxWrites {
			break
		}
		object, said := at.Configs().Value(p.path), at.Statuses().Value(p.path)
		if object == nil {
			switch {
			case said == nil:
				delete(t.pending, p.path)
			case said.Version == "" || !beside.MayHave(facts, said.Key): // else another server has the object
				writes = append(writes, etcd.SideWrite{Key: etcd.ObjectStatusPrefix + p.path, Revision: etcd.Any})
			}
			continue
		}
		used, left := t.uses(p, object, said, now)
		report, settled := makeReport(object, said, evidence{facts, t.verdicts.Of(object.Key()), used || left}, now)
		judged := isJudgedAnew(report, said)
		switch {
		case sameContent(report, said):
			if settled && !left {
				delete(t.pending, p.path)
			}
			t.idle = t.idle && !left
			continue
		case !settled && (now.Sub(p.wrote) < repeatInterval || now.Sub(p.since) < settleTime && !isRejected(report)),
			judged && now.Sub(p.judged) < settleTime && now.Sub(t.judged[p.path]) < calmTime:
			t.idle = false // until it has settled, or its time is up
			continue
		}
		value, err := etcd.EncodeStatus(report)
		if err != nil {
			return nil, err
		}
		writes = append(writes, etcd.SideWrite{Key: etcd.ObjectStatusKey(report.Key), Value: value, Revision: etcd.Any})
		if p.wrote = now; judged {
			t.judged[p.path] = now
		}
	}
	t.idle = t.idle && len(writes) == 0
	return writes, nil
}

// uses says whether a proxy uses an object, or else has left it a moment ago.
func (t *statusQueue) uses(p *pending, object *config.Config, said *status.Report, now time.Time) (used, left bool) {
	if used = t.usage.has(object.Key()); used {
		p.unused = time.Time{}
		return true, false
	}
	if p.unused.IsZero() {
		p.unused = now
	}
	return false, now.Sub(p.unused) < leaveTime && programmedBefore(said, object).Status == status.True
}

func (t *statusQueue) inOrder() []*pending {
	out := slices.Collect(maps.Values(t.pending))
	slices.SortFunc(out, func(a, b *pending) int {
		return cmp.Or(a.since.Compare(b.since), strings.Compare(a.path, b.path))
	})
	return out
}
