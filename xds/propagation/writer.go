package propagation

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/cache/side"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/etcd"
	"github.com/portolan-mesh/portolan/storage/etcd/election"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/storage/status"
)

const (
	// maxWrites bounds the statuses that are written in one look.
	maxWrites = 4 * etcd.SideBatch
	// settles is how long a change may take before it is said that it is under way:
	// of most there is but one thing to say, that it has arrived.
	settles = 3 * time.Second
	// restates is how often it is said anew how far a change has come.
	restates = 5 * time.Second
	// forgotten is how long a proxy that is gone is known.
	forgotten = 24 * time.Hour
)

// Writer writes the statuses of objects. One of all servers does it at a time.
type Writer struct {
	Store  *etcd.Store
	Side   *side.Cache
	Logger *slog.Logger
}

// Run writes until ctx ends, which is also when the leader is another.
func (w *Writer) Run(ctx context.Context, leader *election.Leader) error {
	store := w.Store.Fenced(leader.Client())
	t := &tracker{pending: map[string]*pending{}}
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		if err := w.look(ctx, store, t); err != nil {
			if ctx.Err() != nil || errors.Is(err, election.ErrNotLeader) {
				return nil
			}
			w.Logger.Warn("statuses of objects were not written, it will be tried again", "err", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// look writes what is to be said now.
func (w *Writer) look(ctx context.Context, store *etcd.Store, t *tracker) error {
	facts, _ := w.Side.Facts()
	snapshot := w.Side.Snapshot()
	if facts == nil || snapshot == nil {
		return nil
	}
	now := time.Now()
	t.follow(snapshot, now)
	t.accused(snapshot, facts, now)
	writes, err := t.due(snapshot, facts, now)
	if err != nil {
		return err
	}
	writes = append(writes, strays(facts, now)...)
	for batch := range slices.Chunk(writes, etcd.SideBatch) {
		if _, err := store.WriteSide(ctx, batch); err != nil {
			return err
		}
	}
	return nil
}

// strays forget the proxies that are gone for long, and those of a server that is
// gone are said to be gone.
func strays(facts *side.Facts, now time.Time) []etcd.SideWrite {
	var writes []etcd.SideWrite
	gone := map[string]bool{} // by server
	for p := range facts.Proxies.Values() {
		if _, asked := gone[p.Replica]; !asked {
			gone[p.Replica] = p.Replica != "" && !alive(facts, p.Replica)
		}
		var value []byte
		switch {
		case p.Replica == "" && now.Sub(p.Seen) > forgotten:
		case gone[p.Replica]:
			var err error
			if value, err = etcd.EncodeProxy(&status.Proxy{Node: p.Node, Seen: now}); err != nil {
				continue // a node id that cannot be written was never read
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

// tracker knows the objects of which there is something to be said. It lasts for
// one term.
type tracker struct {
	at      *cache.Snapshot // that was followed last
	pending map[string]*pending
	gone    []string // paths of objects that went and whose statuses did not

	looked lookedAt // when nothing was to be done
	idle   bool
}

// lookedAt is what due decided by.
type lookedAt struct {
	content  cache.Content
	replicas pmap.Map[*status.Replica]
}

// pending is an object whose last change is under way.
type pending struct {
	path  string
	since time.Time // when it was seen
	wrote time.Time // when its status was last written
}

// follow adds the objects that changed since the last look and drops those that
// went. The first look is at all there are.
func (t *tracker) follow(to *cache.Snapshot, now time.Time) {
	from := t.at
	if from.Epoch() != to.Epoch() {
		from, t.pending = nil, map[string]*pending{}
	}
	for change := range pmap.Diff(from.Configs(), to.Configs()) {
		switch {
		case !change.HasNew:
			delete(t.pending, change.Key)
			t.gone = append(t.gone, change.Key)
		case from != nil || !told(change.New, to.Statuses().Value(change.Key)):
			t.pending[change.Key] = &pending{path: change.Key, since: now}
		}
	}
	if from == nil {
		for path := range to.Statuses().All() {
			if _, exists := to.Configs().Get(path); !exists {
				t.gone = append(t.gone, path)
			}
		}
	}
	t.at = to
}

// told says whether all was said of an object as it is.
func told(object *config.Config, said *status.Report) bool {
	if !said.Of(object.UID) || strconv.FormatInt(said.Object, 10) != object.ResourceVersion {
		return false
	}
	for _, c := range said.Conditions {
		if c.Type == status.Programmed {
			return c.Status == status.True
		}
	}
	return false
}

// accused adds the objects that proxies refuse, whenever these changed.
func (t *tracker) accused(to *cache.Snapshot, facts *side.Facts, now time.Time) {
	for replica := range facts.Replicas.Values() {
		for _, trouble := range replica.Troubles {
			for _, path := range trouble.Objects {
				if _, exists := to.Configs().Get(path); exists && t.pending[path] == nil {
					t.pending[path] = &pending{path: path, since: now}
				}
			}
		}
	}
}

// due are the writes of what is to be said now, at most maxWrites, of the objects
// first that changed first.
func (t *tracker) due(at *cache.Snapshot, facts *side.Facts, now time.Time) ([]etcd.SideWrite, error) {
	looked := lookedAt{at.Content(), facts.Replicas}
	if t.idle && looked == t.looked {
		return nil, nil
	}
	t.looked, t.idle = looked, true
	var writes []etcd.SideWrite
	for len(t.gone) > 0 && len(writes) < maxWrites {
		path := t.gone[0]
		t.gone = t.gone[1:]
		if at.Statuses().Value(path) != nil {
			writes = append(writes, etcd.SideWrite{Key: etcd.ObjectStatusPrefix + path, Revision: etcd.Any})
		}
	}
	for _, p := range t.inOrder() {
		if len(writes) >= maxWrites {
			break
		}
		object, said := at.Configs().Value(p.path), at.Statuses().Value(p.path)
		report, settled := say(object, said, facts, now)
		switch {
		case sameWords(report, said):
			if settled {
				delete(t.pending, p.path)
			}
			continue
		case !settled && (now.Sub(p.wrote) < restates || now.Sub(p.since) < settles && !refuses(report)):
			t.idle = false // until it has settled, or its time is up
			continue
		}
		value, err := etcd.EncodeStatus(report)
		if err != nil {
			return nil, err
		}
		writes = append(writes, etcd.SideWrite{Key: etcd.ObjectStatusKey(report.Key), Value: value, Revision: etcd.Any})
		p.wrote = now
	}
	t.idle = t.idle && len(writes) == 0
	return writes, nil
}

func (t *tracker) inOrder() []*pending {
	out := make([]*pending, 0, len(t.pending))
	for _, p := range t.pending {
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b *pending) int {
		return cmp.Or(a.since.Compare(b.since), strings.Compare(a.path, b.path))
	})
	return out
}
