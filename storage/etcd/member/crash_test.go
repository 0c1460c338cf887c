package member_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// TestAcknowledgedWritesSurvive kills the server, its store process, or both,
// in the middle of writes, again and again. PORTOLAN_CRASH_ROUNDS says how
// often; the default is a short run.
func TestAcknowledgedWritesSurvive(t *testing.T) {
	t.Parallel()
	rounds := 6
	if n, err := strconv.Atoi(os.Getenv("PORTOLAN_CRASH_ROUNDS")); err == nil {
		rounds = n
	}
	dir, runtimeDir := t.TempDir(), shortDir(t)
	s := startServer(t, dir, runtimeDir)
	acknowledged := 0 // the keys 0 to acknowledged-1 are acknowledged
	for round := range rounds {
		acknowledged = writeUntilKilled(t, s, acknowledged, func() {
			store := readLock(t, dir).PID
			if round%3 != 0 {
				s.kill()
			}
			if round%3 != 1 {
				// It may have ended already, after the death of its server.
				_ = syscall.Kill(store, syscall.SIGKILL)
			}
		})
		if round%3 != 0 {
			s = startServer(t, dir, runtimeDir)
		}
		verify(t, s, round, acknowledged)
	}
	t.Logf("%d rounds, %d acknowledged writes", rounds, acknowledged)
}

// writeUntilKilled writes numbered keys, one after the other, until one is not
// acknowledged, or the kill is over that comes after some random writes. It returns how many
// keys are acknowledged.
func writeUntilKilled(t *testing.T, s *server, acknowledged int, kill func()) int {
	t.Helper()
	client := clientOf(t, s.endpoint)
	defer client.Close()
	after := acknowledged + 1 + rand.IntN(40)
	killed := make(chan struct{})
	for {
		if acknowledged == after {
			go func() { defer close(killed); kill() }()
		}
		limit := 5 * time.Second // the store may be dead
		if acknowledged < after {
			limit = 30 * time.Second
		}
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		_, err := client.Put(ctx, fmt.Sprintf("k%08d", acknowledged), strconv.Itoa(acknowledged))
		cancel()
		if err != nil {
			if acknowledged < after {
				t.Fatalf("put before the kill: %v", err)
			}
			<-killed
			return acknowledged
		}
		acknowledged++
		select {
		case <-killed: // between two writes
			return acknowledged
		default:
		}
	}
}

// verify reads back every acknowledged key.
func verify(t *testing.T, s *server, round, acknowledged int) {
	t.Helper()
	client := clientOf(t, s.endpoint)
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	answer, err := client.Get(ctx, "k", clientv3.WithPrefix())
	if err != nil {
		t.Fatalf("round %d: %v", round, err)
	}
	if len(answer.Kvs) < acknowledged {
		t.Fatalf("round %d: %d of %d acknowledged writes are there", round, len(answer.Kvs), acknowledged)
	}
	for i, kv := range answer.Kvs[:acknowledged] {
		if string(kv.Key) != fmt.Sprintf("k%08d", i) || string(kv.Value) != strconv.Itoa(i) {
			t.Fatalf("round %d: key %d reads %s = %s", round, i, kv.Key, kv.Value)
		}
	}
}
