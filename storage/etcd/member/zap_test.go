package member

import (
	"maps"
	"slices"
	"testing"

	"github.com/portolan-mesh/portolan/storage/etcd/etcdtest"
)

// TestWordsOfEtcd: etcd, and what it is made of, still uses the words that this package mutes, and
// those by which it recognises damage.
func TestWordsOfEtcd(t *testing.T) {
	t.Parallel()
	texts := append(slices.Collect(maps.Keys(expected)), pending, "has already been bootstrapped", "found data inconsistency with peers")
	for _, d := range damageSigns("") {
		texts = append(texts, d.texts...)
	}
	etcdtest.CheckTexts(t, texts, "go.etcd.io/etcd/server/v3", "go.etcd.io/etcd/client/pkg/v3", "go.etcd.io/raft/v3", "go.etcd.io/bbolt", "google.golang.org/protobuf")
}
