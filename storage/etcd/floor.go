package etcd

import (
	"context"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/etcd/envelope"
	"github.com/portolan-mesh/portolan/storage/history"
)

// floorPrefix is the tree of floors: the revision back to which the history of each
// scope (history.Scope) is complete.
const floorPrefix = MetaPrefix + "history/"

func floorKey(scope config.Key) string {
	return floorPrefix + strings.TrimSuffix(config.NamespacePath(scope.Kind, scope.Namespace), "/")
}

// floor returns the highest floor of the scopes of a selection. A floor that cannot be
// decoded counts as the revision that wrote it.
func (s *Store) floor(ctx context.Context, selection storage.Selection, at int64) (floor int64, err error) {
	_, err = s.walk(ctx, Range{Prefix: floorPrefix, Revision: at}, func(kv *mvccpb.KeyValue) {
		if !history.InScope(selection, scopeOf(kv)) {
			return
		}
		revision, err := decodeFloor(kv)
		if err != nil {
			s.leaveOut(ctx, kv, err)
			revision = kv.ModRevision
		}
		floor = max(floor, revision)
	})
	return floor, err
}

// scopeOf is the inverse of floorKey.
func scopeOf(kv *mvccpb.KeyValue) config.Key {
	parts := strings.SplitN(strings.TrimPrefix(string(kv.Key), floorPrefix), "/", 3)
	parts = append(parts, "", "")
	if parts[2] == clusterScope {
		parts[2] = ""
	}
	return config.Key{Kind: config.GroupVersionKind{Group: config.GroupOfPath(parts[0]), Kind: parts[1]}, Namespace: parts[2]}
}

func encodeFloor(revision int64) ([]byte, error) {
	return envelope.Encode(&envelope.Floor{Revision: revision})
}

func decodeFloor(kv *mvccpb.KeyValue) (revision int64, err error) {
	floor := &envelope.Floor{}
	if err := open(kv, floor); err != nil {
		return 0, err
	}
	return floor.Revision, nil
}
