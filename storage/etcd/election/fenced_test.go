package election_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/portolan-mesh/portolan/storage/etcd/election"
	"github.com/portolan-mesh/portolan/storage/etcd/etcdtest"
)

// terms records which terms have written a key, from the first revision on, in the order
// of their writes.
type terms struct {
	mu  sync.Mutex
	all []int64
}

func watchTerms(t *testing.T, client *clientv3.Client, key string) *terms {
	t.Helper()
	out := &terms{}
	ctx, cancel := context.WithCancel(t.Context())
	events := client.Watch(ctx, key, clientv3.WithRev(1))
	var watching sync.WaitGroup
	watching.Go(func() {
		for answer := range events {
			out.mu.Lock()
			for _, e := range answer.Events {
				var term int64
				if _, err := fmt.Sscan(string(e.Kv.Value), &term); err != nil {
					t.Errorf("%s: %v", e.Kv.Value, err)
				}
				out.all = append(out.all, term)
			}
			out.mu.Unlock()
		}
	})
	t.Cleanup(func() { cancel(); watching.Wait() })
	return out
}

func (o *terms) now() []int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.all)
}

// distinct are the terms that have written.
func (o *terms) distinct() int { return len(slices.Compact(slices.Sorted(slices.Values(o.now())))) }

// TestOneLeader: two processes take part in one election. The leader is paused for so
// long that the other takes over, and then resumes. With the fence nothing of the old
// term is written after a write of the next one; without it something is.
func TestOneLeader(t *testing.T) {
	t.Parallel()
	endpoint := etcdtest.Listen(t)
	client := etcdtest.Dial(t, endpoint)
	fenced, unfenced := watchTerms(t, client, fencedKey), watchTerms(t, client, unfencedKey)
	first := startHolder(t, endpoint, "first")
	first.awaitLine("leads")
	second := startHolder(t, endpoint, "second")
	eventually(t, "the first term has written", func() bool { return len(fenced.now()) > 100 })

	first.signal(syscall.SIGSTOP)
	second.awaitLine("leads")
	eventually(t, "the second term has written", func() bool { return fenced.distinct() == 2 })
	first.signal(syscall.SIGCONT)
	first.awaitLine("refused")

	eventually(t, "an unfenced write of the old leader lands after one of the new", func() bool {
		return !slices.IsSorted(unfenced.now())
	})
	n := len(fenced.now())
	eventually(t, "the second term goes on", func() bool { return len(fenced.now()) > n+100 })
	if all := fenced.now(); !slices.IsSorted(all) {
		t.Errorf("fenced writes of two terms interleave: %v", slices.Compact(all))
	}
	second.end()
	first.awaitLine("leads")
	eventually(t, "the third term has written", func() bool { return fenced.distinct() == 3 })
	if all := fenced.now(); !slices.IsSorted(all) {
		t.Errorf("fenced writes of three terms interleave: %v", slices.Compact(all))
	}
}

// TestLeaderKilled: another takes over when the lease expires, not before.
func TestLeaderKilled(t *testing.T) {
	t.Parallel()
	endpoint := etcdtest.Listen(t)
	first := startHolder(t, endpoint, "first")
	first.awaitLine("leads")
	second := startHolder(t, endpoint, "second")
	client := etcdtest.Dial(t, endpoint)
	eventually(t, "the second waits", func() bool { return candidates(t, client) == 2 })
	begun := time.Now()
	first.signal(syscall.SIGKILL)
	second.awaitLine("leads")
	// The lease was renewed up to a third of the TTL ago, half a second of etcd's
	// rounds included, and expires up to half a second late.
	if took := time.Since(begun); took < ttl/3 || took > 2*ttl+time.Second {
		t.Errorf("the next leader after %s, with a TTL of %s", took, ttl)
	}
	eventually(t, "the dead one's key is gone", func() bool { return candidates(t, client) == 1 })
}

// TestLeaderResigns: when a leader ends in order, the next one leads at once.
func TestLeaderResigns(t *testing.T) {
	t.Parallel()
	endpoint := etcdtest.Listen(t)
	first := startHolder(t, endpoint, "first")
	first.awaitLine("leads")
	second := startHolder(t, endpoint, "second")
	client := etcdtest.Dial(t, endpoint)
	eventually(t, "the second waits", func() bool { return candidates(t, client) == 2 })
	begun := time.Now()
	first.end()
	second.awaitLine("leads")
	if took := time.Since(begun); took > ttl/3 {
		t.Errorf("the next leader after %s", took)
	}
	holder, err := election.Observe(t.Context(), client, name)
	if err != nil || holder.ID != "second" {
		t.Errorf("leader: %+v, %v", holder, err)
	}
	second.end()
	eventually(t, "no lease is left", func() bool { return leases(t, client) == 0 })
}
