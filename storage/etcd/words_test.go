package etcd

import (
	"slices"
	"testing"

	"github.com/portolan-mesh/portolan/storage/etcd/etcdtest"
)

// TestWordsOfErrors: etcd and gRPC still use the words by which this package recognises errors.
func TestWordsOfErrors(t *testing.T) {
	t.Parallel()
	etcdtest.CheckTexts(t, slices.Concat(wordsOfTooLarge, wordsOfUnsent), "go.etcd.io/etcd/api/v3", "go.etcd.io/etcd/client/v3", "google.golang.org/grpc")
}
