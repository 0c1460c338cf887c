package statuses

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/metadata"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/storage/etcd"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/storage/status"
)

var (
	// errLeapt: the base was listed again, so the revisions between are unknown.
	errLeapt  = errors.New("the configuration was listed anew")
	errEnded  = errors.New("the watch ended")
	errSilent = errors.New("the watch does not tell its progress")
)

const (
	// askAgain is how often the cache requests the progress of the watch that is behind.
	// silence is how long that watch may be behind.
	askAgain = 50 * time.Millisecond
	silence  = 15 * time.Second
)

// mirror lists, and then merges both watches, until ctx ends or only a new list helps.
func (c *Cache) mirror(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var beside sync.WaitGroup
	defer beside.Wait()
	defer cancel()
	facts, err := c.list(ctx)
	if err != nil {
		return err
	}
	base, err := c.base.Await(ctx, facts.Revision)
	if err != nil {
		return err
	}
	c.setFacts(facts)
	m := &merger{
		cache: c, facts: *facts, statuses: facts.Statuses, known: facts.Revision, base: base, basis: base.Revision(), since: base.Revision(),
		bases: make(chan *cache.Snapshot), restart: true,
	}
	// Use a stream of its own, so that its progress does not wait for other watches.
	ctx = metadata.AppendToOutgoingContext(clientv3.WithRequireLeader(ctx), "portolan-watch", "status")
	m.watch = c.client.Watch(ctx, etcd.StatusPrefix, clientv3.WithPrefix(), clientv3.WithRev(facts.Revision+1))
	failed := make(chan error, 1)
	beside.Go(func() { failed <- m.followBase(ctx, base) })
	err = m.run(ctx, failed)
	cancel()
	for range m.watch { // until the client has closed it
	}
	return err
}

// merger merges the snapshots of the base and the changes of statuses by revision.
// Only the goroutine of run uses its fields.
type merger struct {
	cache *Cache
	bases chan *cache.Snapshot
	watch clientv3.WatchChan

	facts    Reports                  // as of the watch
	base     *cache.Snapshot          // last merged
	statuses pmap.Map[*status.Report] // last merged
	since    int64                    // revision of the first base; earlier revisions are not separated
	restart  bool                     // nothing was published yet
	basis    int64                    // the base is complete up to here
	known    int64                    // the statuses are complete up to here
	waiting  []*cache.Snapshot        // snapshots of the base not merged yet, in order
	later    []revised                // statuses not merged yet, in order
	asked    time.Time                // when progress was last requested
	behind   time.Time                // since when the watch of statuses is behind
}

type revised struct {
	revision int64
	statuses pmap.Map[*status.Report]
}

// followBase passes the snapshots of the base to bases.
func (m *merger) followBase(ctx context.Context, last *cache.Snapshot) error {
	for {
		next, err := m.cache.base.Next(ctx, last)
		if err != nil {
			return fmt.Errorf("follow the configuration: %w", err)
		}
		if _, known := m.cache.base.At(last.Revision()); !known || next.Epoch() != last.Epoch() {
			return errLeapt
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case m.bases <- next:
		}
		last = next
	}
}

// run merges until ctx ends or a part fails.
func (m *merger) run(ctx context.Context, failed <-chan error) error {
	ticker := time.NewTicker(askAgain)
	defer ticker.Stop()
	for {
		m.merge()
		if err := m.requestProgress(ctx); err != nil {
			return err
		}
		var ticks <-chan time.Time
		if m.basis != m.known {
			ticks = ticker.C
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-failed:
			return err
		case next := <-m.bases:
			if next.Content() != m.last().Content() {
				m.waiting = append(m.waiting, next)
			}
			m.basis = next.Revision()
		case response, ok := <-m.watch:
			if !ok {
				return errEnded
			}
			if err := m.receive(response); err != nil {
				return err
			}
		case <-ticks:
		}
	}
}

// last returns the newest snapshot received from the base.
func (m *merger) last() *cache.Snapshot {
	if n := len(m.waiting); n > 0 {
		return m.waiting[n-1]
	}
	return m.base
}

// receive applies a response of the watch of statuses.
func (m *merger) receive(r clientv3.WatchResponse) error {
	if err := r.Err(); err != nil {
		return err
	}
	before := m.facts
	for _, e := range r.Events {
		m.facts.Revision = e.Kv.ModRevision
		if e.Type == clientv3.EventTypeDelete {
			remove(&m.facts, string(e.Kv.Key))
		} else {
			m.cache.put(&m.facts, e.Kv)
		}
		m.enqueue(e.Kv.ModRevision)
	}
	// A watch that catches up sends its events in parts, each with the revision of the
	// store. So the statuses are complete only up to the last event.
	known := r.Header.Revision
	if n := len(r.Events); n > 0 {
		known = r.Events[n-1].Kv.ModRevision
	}
	if known > m.known { // otherwise a lagging member sent it
		m.known, m.behind = known, time.Time{}
	}
	if m.facts != before {
		facts := m.facts
		m.cache.setFacts(&facts)
	}
	return nil
}

func (m *merger) enqueue(revision int64) {
	if n := len(m.later); n > 0 && m.later[n-1].revision == revision {
		m.later[n-1].statuses = m.facts.Statuses
		return
	}
	m.later = append(m.later, revised{revision, m.facts.Statuses})
}

// merge publishes, in order, all revisions up to which both watches are complete.
func (m *merger) merge() {
	limit := min(m.basis, m.known)
	for {
		revision := limit + 1
		if len(m.waiting) > 0 {
			revision = min(revision, m.waiting[0].Changed())
		}
		if len(m.later) > 0 {
			revision = min(revision, m.later[0].revision)
		}
		if revision > limit {
			break
		}
		if len(m.waiting) > 0 && m.waiting[0].Changed() == revision {
			m.base, m.waiting = m.waiting[0], m.waiting[1:]
		}
		if len(m.later) > 0 && m.later[0].revision == revision {
			m.statuses, m.later = m.later[0].statuses, m.later[1:]
		}
		if revision >= m.since { // otherwise the first base is newer
			m.publish(revision)
		}
	}
	if newest := m.cache.feed.Snapshot(); limit >= m.since && (m.restart || limit > newest.Revision()) {
		m.publish(limit)
	}
}

func (m *merger) publish(revision int64) {
	content := m.base.Content()
	content.Statuses, content.Judged = m.statuses, m.cache.o.Judged
	if m.restart {
		m.restart = false
		first := m.base.Next(revision, content)
		m.cache.first.Store(first)
		m.cache.feed.Replace(first)
		return
	}
	m.cache.feed.Publish(m.cache.feed.Snapshot().Next(revision, content))
}

// requestProgress requests the progress of the watch that is behind. It fails if that stays behind.
func (m *merger) requestProgress(ctx context.Context) error {
	now := time.Now()
	switch {
	case m.basis == m.known:
		m.behind = time.Time{}
		return nil
	case now.Sub(m.asked) < askAgain/2 && !m.behind.IsZero():
		return nil
	}
	m.asked = now
	if m.known > m.basis {
		wait, cancel := context.WithTimeout(ctx, askAgain)
		defer cancel()
		_, _ = m.cache.base.Await(wait, m.known) // for the progress that Await requests
		return nil
	}
	if m.behind.IsZero() {
		m.behind = now
	}
	if now.Sub(m.behind) > silence {
		return errSilent
	}
	call, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if err := m.cache.client.RequestProgress(call); err != nil {
		m.cache.o.Log.Debug("etcd cannot be asked for its progress", "err", err)
	}
	return nil
}
