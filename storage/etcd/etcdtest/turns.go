package etcdtest

import (
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// TakeTurns lends one etcd to many tests, since starting one for each would take too long. A
// test that calls the returned function has the etcd, emptied, until the test ends; the
// others wait.
func TakeTurns(client *clientv3.Client) func(t testing.TB) {
	free := make(chan struct{}, 1)
	free <- struct{}{}
	return func(t testing.TB) {
		t.Helper()
		<-free
		t.Cleanup(func() { free <- struct{}{} })
		if _, err := client.Delete(t.Context(), "", clientv3.WithFromKey()); err != nil {
			t.Fatalf("empty etcd: %v", err)
		}
	}
}
