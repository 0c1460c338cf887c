package backup

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	etcdschema "go.etcd.io/etcd/server/v3/storage/schema"
	"google.golang.org/protobuf/proto"

	"github.com/portolan-mesh/portolan/storage/access"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/etcd"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// read fills in what the database says. The bucket of keys has every revision of every
// key, in order.
func (s *Summary) read(tx *bolt.Tx, schemas schema.Set) error {
	revisions, meta := tx.Bucket(etcdschema.Key.Name()), tx.Bucket(etcdschema.Meta.Name())
	if revisions == nil || meta == nil {
		return errors.New("it lacks the tables of etcd")
	}
	if v := etcdschema.ReadStorageVersionFromSnapshot(tx); v != nil {
		s.Etcd = v.String()
	}
	s.compactions(meta)
	live := map[string]string{} // the newest revision of each key that exists
	err := revisions.ForEach(func(revision, value []byte) error {
		kv := &mvccpb.KeyValue{}
		if err := proto.Unmarshal(value, kv); err != nil {
			return fmt.Errorf("revision %x: %w", revision, err)
		}
		s.Revision = max(s.Revision, mvcc.BytesToRev(revision).Main)
		switch {
		case len(kv.Key) == 0: // a restore leaves revisions without a key
		case mvcc.IsTombstone(revision):
			delete(live, string(kv.Key))
		default:
			live[string(kv.Key)] = string(revision)
		}
		return nil
	})
	if err != nil {
		return err
	}
	s.Keys = len(live)
	kinds := map[string]*KindCount{}
	for key, revision := range live {
		kv := &mvccpb.KeyValue{}
		if err := proto.Unmarshal(revisions.Get([]byte(revision)), kv); err != nil {
			return fmt.Errorf("key %q: %w", key, err)
		}
		s.count(kv, schemas, kinds)
	}
	s.order(kinds)
	return nil
}

// compactions notes how far the store was compacted, or was about to be.
func (s *Summary) compactions(meta *bolt.Bucket) {
	for _, name := range [][]byte{etcdschema.FinishedCompactKeyName, etcdschema.ScheduledCompactKeyName} {
		if revision := meta.Get(name); revision != nil {
			s.Compacted = max(s.Compacted, mvcc.BytesToRev(revision).Main)
		}
	}
	s.Revision = max(s.Compacted, 1) // the revision of a store without keys
}

func (s *Summary) count(kv *mvccpb.KeyValue, schemas schema.Set, kinds map[string]*KindCount) {
	key := string(kv.Key)
	switch {
	case key == etcd.InstanceKey:
		s.Instance = string(kv.Value)
	case key == etcd.FormatKey:
		s.Format = etcd.DecodeFormat(kv).StorageFormat
	case strings.HasPrefix(key, etcd.ConfigPrefix):
		s.countObject(kv, schemas, kinds)
	case strings.HasPrefix(key, etcd.HistoryPrefix):
		s.Records++
		at, err := etcd.RecordTime(kv)
		if err != nil {
			return // the record counts, but its time is unknown
		}
		if s.First.IsZero() || at.Before(s.First) {
			s.First = at
		}
		if at.After(s.Last) {
			s.Last = at
		}
	case strings.HasPrefix(key, etcd.RegistryPrefix):
		if head, err := etcd.DecodeRegistryHead(kv); err == nil {
			s.Registries = append(s.Registries, RegistrySource{head.Source, head.Confirmed})
		}
	case !strings.HasPrefix(key, etcd.Root):
		s.Other++
	}
}

func (s *Summary) countObject(kv *mvccpb.KeyValue, schemas schema.Set, kinds map[string]*KindCount) {
	parts := strings.SplitN(strings.TrimPrefix(string(kv.Key), etcd.ConfigPrefix), "/", 3)
	parts = append(parts, "")
	id := parts[0] + "/" + parts[1]
	if kinds[id] == nil {
		kinds[id] = &KindCount{Group: config.GroupOfPath(parts[0]), Kind: parts[1]}
	}
	kinds[id].Count++
	object, err := etcd.Decode(kv, schemas, "")
	if err != nil {
		kinds[id].Unreadable++
		return
	}
	if token, ok := object.Spec.(*access.JoinToken); ok && token.Used < max(1, token.Uses) && time.Now().Before(token.Expires) {
		s.OpenTokens = append(s.OpenTokens, object.Namespace+"/"+object.Name)
	}
}

func (s *Summary) order(kinds map[string]*KindCount) {
	slices.Sort(s.OpenTokens)
	slices.SortFunc(s.Registries, func(a, b RegistrySource) int { return cmp.Compare(a.Source, b.Source) })
	s.Objects = []KindCount{}
	for _, k := range kinds {
		s.Objects = append(s.Objects, *k)
	}
	slices.SortFunc(s.Objects, func(a, b KindCount) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Kind, b.Kind))
	})
}
