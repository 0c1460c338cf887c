package cache

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/portolan-mesh/portolan/storage"
)

// history keeps the newest snapshots, in the order of their revisions, and
// wakes those who wait for the next. It is bounded: one who falls too far
// behind is told so and starts over. Snapshots share what does not differ, so
// each costs what it changed.
type history struct {
	newest        atomic.Pointer[Snapshot]
	limit, weight int // how many stays, and how many changes between them

	mu      sync.Mutex // guards the fields below, and the writing of newest
	stays   []stay
	changes int           // of all stays but the first
	trimmed bool          // the predecessor of stays[0] was known once
	changed chan struct{} // closed at the next snapshot
}

// stay is a time in which nothing changed: from the revision that made its
// content to that of snapshot.
type stay struct {
	from     int64
	changes  int // what differs from the stay before
	snapshot *Snapshot
}

func newHistory(limit, weight int) *history {
	return &history{limit: limit, weight: weight, changed: make(chan struct{})}
}

func (h *history) append(s *Snapshot) { h.put(s, false) }

func (h *history) restart(s *Snapshot) { h.put(s, true) }

func (h *history) put(s *Snapshot, restart bool) {
	last := h.newest.Load()
	changes := 0
	if !restart {
		changes = last.Content().differences(s.content)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.newest.Store(s)
	switch {
	case len(h.stays) == 0, restart, s.revision < last.revision,
		s.revision == last.revision && s.content != last.content:
		h.stays, h.trimmed, h.changes = []stay{{from: s.revision, snapshot: s}}, false, 0
	case s.content == last.content:
		h.stays[len(h.stays)-1].snapshot = s
	default:
		h.stays = append(h.stays, stay{from: s.revision, changes: changes, snapshot: s})
		h.changes += changes
	}
	for len(h.stays) > h.limit || (h.changes > h.weight && len(h.stays) > 2) {
		h.stays[0] = stay{}
		h.stays, h.trimmed = h.stays[1:], true
		h.changes -= h.stays[0].changes
	}
	close(h.changed)
	h.changed = make(chan struct{})
}

// wait returns a channel that is closed at the next snapshot.
func (h *history) wait() <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.changed
}

// at is Feed.At.
func (h *history) at(revision int64) (*Snapshot, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if revision > h.newest.Load().Revision() {
		return nil, false
	}
	return h.standing(revision)
}

// standing returns the last snapshot whose content was made at or before a
// revision.
func (h *history) standing(revision int64) (*Snapshot, bool) {
	i, found := slices.BinarySearchFunc(h.stays, revision, func(s stay, r int64) int { return cmp.Compare(s.from, r) })
	if !found {
		i--
	}
	if i < 0 {
		return nil, false
	}
	return h.stays[i].snapshot, true
}

// before is Feed.Since.
func (h *history) before(revision int64) (*Snapshot, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if s, ok := h.standing(revision - 1); ok {
		return s, true
	}
	if len(h.stays) == 0 || h.trimmed || h.stays[0].from != revision {
		return nil, false
	}
	return h.stays[0].snapshot.without(revision), true
}

// after returns the snapshot after another, or what to wait for.
func (h *history) after(last *Snapshot) (next *Snapshot, changed <-chan struct{}, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	revision, newest := last.Revision(), h.newest.Load().Revision()
	switch {
	case last.Epoch() != h.newest.Load().Epoch():
		return nil, nil, fmt.Errorf("follow from revision %d: %w: the source turned out to be another one", revision, storage.ErrCompacted)
	case revision > newest:
		return nil, nil, fmt.Errorf("follow from revision %d: %w: the source went back to %d", revision, storage.ErrCompacted, newest)
	case h.trimmed && revision < h.stays[0].from:
		return nil, nil, fmt.Errorf("follow from revision %d: %w: the oldest kept is %d", revision, storage.ErrCompacted, h.stays[0].from)
	}
	i, found := slices.BinarySearchFunc(h.stays, revision, func(s stay, r int64) int { return cmp.Compare(s.snapshot.revision, r) })
	if found {
		i++
	}
	if i < len(h.stays) {
		return h.stays[i].snapshot, nil, nil
	}
	return nil, h.changed, nil
}

// without returns the snapshot as of the revision before, as far as it can be
// told from what it holds: what bears the revision is left out.
func (s *Snapshot) without(revision int64) *Snapshot {
	version := strconv.FormatInt(revision, 10)
	content := s.content
	for key, object := range s.content.Configs.All() {
		if object.ResourceVersion == version {
			content.Configs = content.Configs.Delete(key)
		}
	}
	for key, assignment := range s.content.Addresses.All() {
		if assignment.Revision == revision {
			content.Addresses = content.Addresses.Delete(key)
		}
	}
	for key, report := range s.content.Health.All() {
		if report.Revision == revision {
			content.Health = content.Health.Delete(key)
		}
	}
	for key, report := range s.content.Statuses.All() {
		if report.Revision == revision {
			content.Statuses = content.Statuses.Delete(key)
		}
	}
	return &Snapshot{revision: revision - 1, changed: revision - 1, epoch: s.epoch, content: content}
}
