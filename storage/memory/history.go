package memory

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/history"
	"github.com/portolan-mesh/portolan/storage/plan"
)

// record adds a record of steps, and drops the oldest record if there are too many. The
// caller holds mu.
func (s *Store) record(revision int64, steps []plan.Step, origin storage.Origin, now time.Time) {
	record := history.Record{Revision: revision, Time: now.UTC().Truncate(time.Millisecond), Origin: origin}
	for _, step := range steps {
		if step.Outcome != storage.Unchanged {
			record.Entries = append(record.Entries, history.Entry{Key: step.Key, Outcome: step.Outcome, Before: config.Shown(step.Before)})
		}
	}
	s.records = append(s.records, record)
	if len(s.records) > len(s.states.ring) {
		s.raise(history.Floors(s.records, []int{0}))
		s.records = s.records[1:]
	}
}

// raise raises the floors of scopes, because records are gone. The caller holds mu.
func (s *Store) raise(floors map[config.Key]int64) {
	for scope, floor := range floors {
		s.floors[scope] = max(s.floors[scope], floor)
	}
}

// History implements storage.Historian.
func (s *Store) History(_ context.Context, key config.Key, limit int) ([]storage.Change, error) {
	canonical, err := plan.Key(s.schemas, key.Kind, key.Name, key.Namespace)
	if err != nil {
		return nil, fmt.Errorf("history: %w", err)
	}
	view := s.view(storage.Selection{Kind: canonical.Kind, Namespace: canonical.Namespace, Name: canonical.Name})
	var changes []storage.Change
	for _, record := range view.Recorded(0, math.MaxInt64, limit) {
		changes = append(changes, record.Changes...)
	}
	return changes, nil
}

// Records implements storage.Historian.
func (s *Store) Records(_ context.Context, query storage.Query) ([]storage.Record, error) {
	selection, err := plan.Selection(s.schemas, query.Selection)
	if err != nil {
		return nil, fmt.Errorf("records: %w", err)
	}
	after, until, err := plan.Between(query)
	if err != nil {
		return nil, fmt.Errorf("records: %w", err)
	}
	return s.view(selection).Recorded(after, until, query.Limit), nil
}

// At implements storage.Historian. It reads the state of the version if the store still has
// it, else it derives it from the records.
func (s *Store) At(_ context.Context, version string, selection storage.Selection) ([]*config.Config, error) {
	selection, err := plan.Selection(s.schemas, selection)
	if err != nil {
		return nil, fmt.Errorf("read at version %s: %w", version, err)
	}
	revision, err := s.revision(version)
	if err != nil {
		return nil, fmt.Errorf("read at version %s: %w", version, err)
	}
	view := s.view(selection)
	if then := s.states.at(revision); then != nil {
		view = history.Excerpt{Live: selected(then, selection)}
	}
	objects, err := view.At(revision)
	if err != nil {
		return nil, fmt.Errorf("read at version %s: %w", version, err)
	}
	return objects, nil
}

// Prune implements storage.Historian.
func (s *Store) Prune(_ context.Context, r storage.Retention) (removed int, err error) {
	if err := history.CheckRetention(r); err != nil {
		return 0, fmt.Errorf("prune: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	records := slices.Clone(s.records)
	history.Sort(records)
	live := func(key config.Key) bool { return s.current.Load().Configs.Value(key.Path()) != nil }
	expired := history.Expired(records, live, r, s.now())
	s.raise(history.Floors(records, expired))
	gone := map[int64]bool{}
	for _, place := range expired {
		gone[records[place].Revision] = true
	}
	s.records = slices.DeleteFunc(slices.Clone(s.records), func(r history.Record) bool { return gone[r.Revision] })
	return len(expired), nil
}

// view returns the history of the selected objects, as of now.
func (s *Store) view(selection storage.Selection) history.Excerpt {
	s.mu.Lock()
	now, records := s.current.Load(), s.records
	var floor int64
	for scope, revision := range s.floors {
		if history.InScope(selection, scope) {
			floor = max(floor, revision)
		}
	}
	s.mu.Unlock()
	view := history.Excerpt{Live: selected(now, selection), Floor: floor, Single: selection.Name != ""}
	for _, record := range records {
		record.Entries = slices.DeleteFunc(slices.Clone(record.Entries), func(e history.Entry) bool { return !selection.Has(e.Key) })
		if len(record.Entries) > 0 {
			view.Records = append(view.Records, record)
		}
	}
	history.Sort(view.Records)
	return view
}

func selected(then *state, selection storage.Selection) map[config.Key]*config.Config {
	objects := map[config.Key]*config.Config{}
	for _, object := range then.Configs.All() {
		if selection.Has(object.Key()) {
			objects[object.Key()] = object
		}
	}
	return objects
}
