package reliability_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/portolan-mesh/portolan/integration/reliability"
	"github.com/portolan-mesh/portolan/storage/etcd"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// teller follows the store from its first revision on, without links, and records every event.
// The suite compacts only up to where it is. If the store's own compaction overtakes it, the
// truth is lost.
type teller struct {
	r *rig

	mu       sync.Mutex // guards the fields below
	events   []reliability.Event
	statuses []reliability.Event
	revision int64 // all events up to it are known
	err      error // why the truth is lost
}

// errOvertaken means that the truth is lost.
var errOvertaken = errors.New("history was dropped before it was read")

// run follows until ctx ends.
func (t *teller) run(ctx context.Context) {
	for ctx.Err() == nil {
		t.follow(ctx)
		pass(ctx, 50*time.Millisecond)
	}
}

// follow watches one store process, or the members, until others replace them.
func (t *teller) follow(ctx context.Context) {
	endpoints, err := t.r.endpoints()
	if err != nil {
		return
	}
	client, err := newClient(endpoints...)
	if err != nil {
		return
	}
	defer func() { _ = client.Close() }()
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	var beside sync.WaitGroup
	defer beside.Wait()
	defer cancel()
	beside.Go(func() {
		for ctx.Err() == nil {
			pass(ctx, 100*time.Millisecond)
			if now, err := t.r.endpoints(); err != nil || !slices.Equal(now, endpoints) {
				cancel()
			}
			asked, done := context.WithTimeout(ctx, time.Second)
			_ = client.RequestProgress(asked) // the context has the metadata of the watch
			done()
		}
	})
	for response := range client.Watch(ctx, etcd.Root, clientv3.WithPrefix(), clientv3.WithRev(t.at()+1)) {
		if err := response.Err(); err != nil {
			t.fail(err)
			return
		}
		t.take(response)
	}
}

func (t *teller) take(response clientv3.WatchResponse) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, e := range response.Events {
		event := reliability.Event{Revision: e.Kv.ModRevision}
		if path, ok := strings.CutPrefix(string(e.Kv.Key), etcd.ObjectStatusPrefix); ok {
			if key, err := etcd.ParseConfigKey(etcd.ConfigPrefix+path, schema.Pilot()); err == nil {
				event.Key = reliability.KeyOf(key)
				t.statuses = append(t.statuses, event)
			}
			continue
		}
		key, err := etcd.ParseConfigKey(string(e.Kv.Key), schema.Pilot())
		if err != nil {
			continue
		}
		event.Key = reliability.KeyOf(key)
		if e.Type == clientv3.EventTypePut {
			object, err := etcd.Decode(e.Kv, schema.Pilot(), "")
			if err != nil {
				t.err = errors.Join(t.err, err)
				continue
			}
			event.Value = reliability.ValueOf(object.Annotations)
		}
		t.events = append(t.events, event)
	}
	switch n := len(response.Events); {
	case n > 0:
		t.revision = max(t.revision, response.Events[n-1].Kv.ModRevision) // events of one revision come together
	case response.IsProgressNotify():
		t.revision = max(t.revision, response.Header.Revision)
	}
}

func (t *teller) fail(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if errors.Is(err, rpctypes.ErrCompacted) || strings.Contains(err.Error(), "compacted") {
		t.err = errors.Join(t.err, fmt.Errorf("%w at %d: %w", errOvertaken, t.revision, err))
	}
}

// at returns the revision up to which everything is known.
func (t *teller) at() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.revision
}

// result returns the truth, and the revisions of statuses.
func (t *teller) result() (reliability.Truth, reliability.Said, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return reliability.NewTruth(slices.Clone(t.events)), reliability.NewSaid(t.statuses), t.err
}
