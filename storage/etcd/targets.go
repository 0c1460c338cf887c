package etcd

import (
	"context"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/etcd/envelope"
	"github.com/portolan-mesh/portolan/storage/history"
	"github.com/portolan-mesh/portolan/storage/plan"
)

// targets are the objects that a batch is about, as of one revision. Keys that
// are absent have no entries; a value that cannot be read has an object without
// a spec and no wrapper.
type targets struct {
	revision int64
	// guessed says that they are what this Store remembers, not what it read.
	guessed  bool
	objects  map[config.Key]*config.Config
	wrappers map[config.Key]*envelope.Envelope
	kvs      map[config.Key]*mvccpb.KeyValue
	// format is what the store says of itself.
	format Format
	// record is that of the batch, nil unless it was asked for and is there.
	record *mvccpb.KeyValue
	// addresses is what is known of hosts and slots, by key; nil where there is no
	// such key.
	addresses map[string]*mvccpb.KeyValue
	// watched are the targets whose health decides (served.go), and health is that
	// of them, by key.
	watched []config.Key
	health  map[string]*mvccpb.KeyValue
}

// read gets all keys, the health of those watched and the format at one revision,
// by one request.
func (s *Store) read(ctx context.Context, keys, watched []config.Key) (*targets, error) {
	seen := s.seen.Load()
	response, err := s.client.Txn(ctx).Then(append(gets(keys), getHealth(watched)...)...).Commit()
	if err != nil {
		return nil, err
	}
	s.saw(seen, response.Header)
	return s.targets(response), nil
}

func gets(keys []config.Key) []clientv3.Op {
	ops := make([]clientv3.Op, len(keys), len(keys)+2)
	for i, key := range keys {
		ops[i] = clientv3.OpGet(ConfigKey(key))
	}
	return append(ops, clientv3.OpGet(FormatKey))
}

// targets reads the answers to gets, and takes note of the format.
func (s *Store) targets(response *clientv3.TxnResponse) *targets {
	t := newTargets(len(response.Responses))
	t.revision = response.Header.Revision
	for _, r := range response.Responses {
		for _, kv := range r.GetResponseRange().GetKvs() {
			s.addTarget(t, kv)
		}
	}
	for _, kv := range t.kvs {
		s.recent.remember(remembered{kv: kv}, response.Header)
	}
	s.format.Store(&t.format)
	return t
}

func newTargets(n int) *targets {
	return &targets{
		objects:  make(map[config.Key]*config.Config, n),
		wrappers: make(map[config.Key]*envelope.Envelope, n),
		kvs:      make(map[config.Key]*mvccpb.KeyValue, n),

		addresses: map[string]*mvccpb.KeyValue{},
	}
}

// recall makes targets of what is remembered, nil where that is not all.
func (s *Store) recall(keys []config.Key, format Format) *targets {
	all := make([]remembered, len(keys))
	for i, key := range keys {
		if all[i] = s.recent.recall(ConfigKey(key)); all[i].kv == nil {
			return nil
		}
	}
	t := newTargets(len(keys))
	t.guessed, t.format = true, format
	for i, one := range all {
		if !one.own || !s.addEncoded(t, keys[i], one.kv) {
			s.addTarget(t, one.kv)
		}
	}
	return t
}

// addEncoded adds a target that this Store has written, with its spec left as it
// is (plan.Known), and says whether that can be.
func (s *Store) addEncoded(t *targets, key config.Key, kv *mvccpb.KeyValue) bool {
	wrapper, err := open(kv, key)
	if err != nil || !plan.Known(wrapper.Spec.Value, s.Schemas().Kind(key.Kind).NewSpec().ProtoReflect().Descriptor()) {
		return false
	}
	t.kvs[key], t.wrappers[key] = kv, wrapper
	t.objects[key] = assemble(kv, key, wrapper, s.o.Domain, wrapper.Spec)
	return true
}

func (s *Store) addTarget(t *targets, kv *mvccpb.KeyValue) {
	switch {
	case strings.HasPrefix(string(kv.Key), HistoryPrefix):
		t.record = kv
		return
	case string(kv.Key) == FormatKey:
		t.format = decodeFormat(kv)
		return
	case strings.HasPrefix(string(kv.Key), AddressPrefix), strings.HasPrefix(string(kv.Key), SlotPrefix):
		t.addresses[string(kv.Key)] = kv
		return
	case strings.HasPrefix(string(kv.Key), HealthPrefix):
		t.addHealth(kv)
		return
	}
	key, err := ParseConfigKey(string(kv.Key), s.Schemas())
	if err != nil {
		return // Not a key that was asked for.
	}
	t.kvs[key] = kv
	object, wrapper, err := decode(kv, key, s.Schemas().Kind(key.Kind), s.o.Domain)
	if err != nil {
		t.objects[key] = history.Unknown(key, version(kv.ModRevision))
		return
	}
	t.objects[key], t.wrappers[key] = object, wrapper
}

// revisionOf is the mod revision of a target, 0 of an absent one.
func (t *targets) revisionOf(key config.Key) int64 { return t.kvs[key].GetModRevision() }
