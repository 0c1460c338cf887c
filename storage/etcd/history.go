package etcd

import (
	"context"
	"errors"
	"fmt"
	"math"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/history"
	"github.com/portolan-mesh/portolan/storage/plan"
)

// History reads every record, in pages, and keeps the records of the object.
func (s *Store) History(ctx context.Context, key config.Key, limit int) ([]storage.Change, error) {
	canonical, err := plan.Key(s.Schemas(), key.Kind, key.Name, key.Namespace)
	if err != nil {
		return nil, fmt.Errorf("history: %w", err)
	}
	view, err := s.view(ctx, storage.Selection{Kind: canonical.Kind, Namespace: canonical.Namespace, Name: canonical.Name}, 0)
	if err != nil {
		return nil, fmt.Errorf("history of %s: %w", canonical, s.readError(err))
	}
	var changes []storage.Change
	for _, record := range view.Recorded(0, math.MaxInt64, limit) {
		changes = append(changes, record.Changes...)
	}
	return changes, nil
}

// Records reads every record, in pages, and keeps the records that the query selects.
func (s *Store) Records(ctx context.Context, query storage.Query) ([]storage.Record, error) {
	selection, err := plan.Selection(s.Schemas(), query.Selection)
	if err != nil {
		return nil, fmt.Errorf("records: %w", err)
	}
	after, until, err := plan.Between(query)
	if err != nil {
		return nil, fmt.Errorf("records: %w", err)
	}
	view, err := s.view(ctx, selection, after)
	if err != nil {
		return nil, fmt.Errorf("records: %w", s.readError(err))
	}
	return view.Recorded(after, until, query.Limit), nil
}

// At reads at the old revision, unless etcd has compacted it. Then it reads the present
// objects and every record, and undoes the records.
func (s *Store) At(ctx context.Context, version string, selection storage.Selection) ([]*config.Config, error) {
	selection, err := plan.Selection(s.Schemas(), selection)
	if err != nil {
		return nil, fmt.Errorf("read at version %s: %w", version, err)
	}
	revision, err := plan.Revision(version)
	if err != nil {
		return nil, fmt.Errorf("read at version %s: %w", version, err)
	}
	objects, err := s.listAt(ctx, selection, revision)
	if errors.Is(err, rpctypes.ErrCompacted) {
		var view history.Excerpt
		if view, err = s.view(ctx, selection, revision); err == nil {
			if objects, err = view.At(revision); err != nil {
				return nil, fmt.Errorf("read at version %s: %w", version, err)
			}
		}
	}
	if err != nil {
		return nil, fmt.Errorf("read at version %s: %w", version, s.readError(err))
	}
	return objects, nil
}

// listAt reads the selected objects at a revision that is not compacted.
func (s *Store) listAt(ctx context.Context, selection storage.Selection, revision int64) ([]*config.Config, error) {
	var objects []*config.Config
	_, err := s.walk(ctx, Range{Prefix: ConfigPrefix + selectionPath(selection), Revision: revision}, func(kv *mvccpb.KeyValue) {
		if key, err := ParseConfigKey(string(kv.Key), s.Schemas()); err == nil && selection.Has(key) {
			objects = s.addObject(ctx, objects, kv)
		}
	})
	history.Order(objects)
	return objects, err
}

// selectionPath returns the longest common prefix of the Paths of everything selected.
func selectionPath(selection storage.Selection) string {
	switch {
	case selection.Kind.Kind == "":
		return ""
	case selection.Name != "":
		return config.Key{Kind: selection.Kind, Namespace: selection.Namespace, Name: selection.Name}.Path()
	case selection.Namespace != "":
		return config.NamespacePath(selection.Kind, selection.Namespace)
	}
	return config.KindPath(selection.Kind)
}

// view reads the selected objects and their records above a revision, all as of one
// revision of etcd. It returns etcd's errors unwrapped.
func (s *Store) view(ctx context.Context, selection storage.Selection, after int64) (history.Excerpt, error) {
	var view history.Excerpt
	err := restartIfCompacted(func() (err error) {
		view, err = s.viewOnce(ctx, selection, after)
		return err
	})
	return view, err
}

func (s *Store) viewOnce(ctx context.Context, selection storage.Selection, after int64) (history.Excerpt, error) {
	view := history.Excerpt{Live: map[config.Key]*config.Config{}, Single: selection.Name != ""}
	revision, err := s.walk(ctx, Range{Prefix: HistoryPrefix, LargeValues: true}, func(kv *mvccpb.KeyValue) {
		if kv.CreateRevision <= after { // the record of a lease's end is later than that
			return
		}
		record, err := s.openRecord(kv, selection.Has, true)
		if err != nil {
			s.leaveOut(ctx, kv, err)
		} else if len(record.Entries) > 0 {
			view.Records = append(view.Records, record)
		}
	})
	if err != nil {
		return view, err
	}
	history.Sort(view.Records)
	_, err = s.walk(ctx, Range{Prefix: ConfigPrefix + selectionPath(selection), Revision: revision}, func(kv *mvccpb.KeyValue) {
		if key, err := ParseConfigKey(string(kv.Key), s.Schemas()); err == nil && selection.Has(key) {
			view.Live[key] = s.object(kv, key)
		}
	})
	if err != nil {
		return view, err
	}
	view.Floor, err = s.floor(ctx, selection, revision)
	return view, err
}

func (s *Store) leaveOut(ctx context.Context, kv *mvccpb.KeyValue, err error) {
	s.o.Log.WarnContext(ctx, "stored record of history left out", "key", string(kv.Key), "revision", kv.ModRevision, "err", err)
}
