package etcd

import (
	"context"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/etcd/envelope"
	"github.com/portolan-mesh/portolan/storage/history"
)

// targets are the objects that a batch changes, as of one revision. An absent key has no
// entry. A value that cannot be decoded has an object without a spec and no wrapper.
type targets struct {
	revision int64
	// guessed says that this Store remembers the targets and did not read them for this
	// batch.
	guessed  bool
	objects  map[config.Key]*config.Config
	wrappers map[config.Key]*envelope.Envelope
	kvs      map[config.Key]*mvccpb.KeyValue
	format   Format
	// record is the record of the batch, nil unless it was read and exists.
	record *mvccpb.KeyValue
	// addresses are the known hosts and slots, by key; a nil value is an absent key.
	addresses map[string]*mvccpb.KeyValue
	// watched are the targets whose conditions cover their health (served.go); health has
	// the health values by key.
	watched []config.Key
	health  map[string]*mvccpb.KeyValue
}

// read reads all keys, the health of the watched ones and the format by one request, at
// one revision.
func (s *Store) read(ctx context.Context, keys, watched []config.Key) (*targets, error) {
	seen, known := s.seen.Load(), s.format.Load()
	response, err := s.client.Txn(ctx).Then(append(gets(keys), getHealth(watched)...)...).Commit()
	if err != nil {
		return nil, err
	}
	s.noteHeader(seen, response.Header)
	return s.targets(response, known), nil
}

func gets(keys []config.Key) []clientv3.Op {
	ops := make([]clientv3.Op, len(keys), len(keys)+2)
	for i, key := range keys {
		ops[i] = clientv3.OpGet(ConfigKey(key))
	}
	return append(ops, clientv3.OpGet(FormatKey))
}

// targets decodes the answers to gets, and keeps the format. known is the format that
// was known at the request, nil for none: it shows whether the store has lost its format
// since.
func (s *Store) targets(response *clientv3.TxnResponse, known *Format) *targets {
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
	if t.format.Revision == 0 && known != nil && !s.o.WithoutHistory {
		t.format.lost = known.lost || known.Revision != 0
	}
	if now := s.format.Load(); t.format.Revision == 0 && !t.format.lost && now != nil && now.Revision != 0 {
		return t // meanwhile another request has seen the first write
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

// recall makes targets of remembered values; nil if some are not remembered.
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

// addEncoded adds a target that this Store has written, with its spec still encoded. It
// returns false if the spec must be decoded.
func (s *Store) addEncoded(t *targets, key config.Key, kv *mvccpb.KeyValue) bool {
	codec := s.Schemas().Kind(key.Kind).Codec
	if codec.Veiled() {
		return false // the record must leave a part of it out
	}
	wrapper, err := openObject(kv, key)
	if err != nil || !codec.Known(wrapper.Spec) {
		return false
	}
	t.kvs[key], t.wrappers[key] = kv, wrapper
	t.objects[key] = assemble(key, version(kv.ModRevision), wrapper, s.o.Domain, wrapper.Spec)
	return true
}

func (s *Store) addTarget(t *targets, kv *mvccpb.KeyValue) {
	switch {
	case strings.HasPrefix(string(kv.Key), HistoryPrefix):
		t.record = kv
		return
	case string(kv.Key) == FormatKey:
		t.format = DecodeFormat(kv)
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
		return // not a key of the request
	}
	t.kvs[key] = kv
	object, wrapper, err := decode(kv, key, s.Schemas().Kind(key.Kind), s.o.Domain)
	if err != nil {
		t.objects[key] = history.Unknown(key, version(kv.ModRevision))
		return
	}
	t.objects[key], t.wrappers[key] = object, wrapper
}

// revisionOf returns the mod revision of a target, 0 for an absent one.
func (t *targets) revisionOf(key config.Key) int64 { return t.kvs[key].GetModRevision() }
