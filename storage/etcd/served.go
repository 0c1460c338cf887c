package etcd

import (
	"strconv"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/plan"
)

// A condition on the served version of an object (storage.Op.Served) covers its health
// too. The store reads both, compares the condition with the greater of their revisions,
// and makes the transaction conditional on both.

// healthBatch is a batch, and the targets whose conditions cover their health.
type healthBatch struct {
	*plan.Batch
	watched []config.Key
}

func (s *Store) newWork(ops []storage.Op) healthBatch {
	w := healthBatch{Batch: plan.New(s.Schemas(), ops)}
	for _, op := range ops {
		if isWatched(op) {
			key := op.Target()
			key.Kind = s.Schemas().Kind(key.Kind).GroupVersionKind
			w.watched = append(w.watched, key)
		}
	}
	return w
}

// isWatched says whether the condition of an operation covers the health of its target.
func isWatched(op storage.Op) bool {
	return op.Served && hasHealth(op.Target().Kind) && op.Condition() != "" && op.Condition() != storage.Absent
}

func healthKeyOf(key config.Key) string { return HealthKey(key.Namespace, key.Name) }

func getHealth(keys []config.Key) []clientv3.Op {
	ops := make([]clientv3.Op, len(keys))
	for i, key := range keys {
		ops[i] = clientv3.OpGet(healthKeyOf(key))
	}
	return ops
}

// serve sets the served version of each watched target.
func (t *targets) serve(watched []config.Key) {
	t.watched = watched
	for _, key := range watched {
		object, report := t.objects[key], t.health[healthKeyOf(key)]
		if object == nil || decodeHealth(report, object.UID).Uid == "" || report.ModRevision <= t.revisionOf(key) {
			continue
		}
		served := *object
		served.ResourceVersion = strconv.FormatInt(report.ModRevision, 10)
		t.objects[key] = &served
	}
}

// requireHealth makes the transaction conditional on the health of watched targets.
func (m *mutation) requireHealth() {
	for _, key := range m.found.watched {
		m.require(healthKeyOf(key), m.found.healthRevision(key))
	}
}

func (t *targets) healthRevision(key config.Key) int64 {
	return t.health[healthKeyOf(key)].GetModRevision()
}

// addHealth adds a value under HealthPrefix.
func (t *targets) addHealth(kv *mvccpb.KeyValue) {
	if t.health == nil {
		t.health = map[string]*mvccpb.KeyValue{}
	}
	t.health[string(kv.Key)] = kv
}
