package reliability_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest/batch"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/client"
	"github.com/portolan-mesh/portolan/integration/reliability"
	"github.com/portolan-mesh/portolan/storage"
)

// TestNoop: a write without a change makes no revision, no watch event and no push. The change
// after it does.
func TestNoop(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	// Without statuses, every revision is one that a client wrote.
	r := newRig(t, topology{name: "noop", servers: 1, args: []string{"--object-status=false"}}, 1, portolan(t))
	if err := r.seedObjects(ctx); err != nil {
		t.Fatal(err)
	}
	s, group := r.servers[0], reliability.Groups()[0]
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	follower, looker := r.newProxy(s, 0), &watcher{r: r, apis: r.newAPIs(), scope: "ServiceEntry/group"}
	running.Go(func() { follower.run(ctx) })
	running.Go(func() { looker.run(ctx) })
	settled := func() (pushes int) {
		t.Helper()
		if err := await(ctx, 20*time.Second, func() error { _, err := r.sameToAll(ctx, s, []*proxy{follower}); return err }); err != nil {
			t.Fatal(err)
		}
		r.record(func(h *reliability.History) { pushes = len(h.Pushes) })
		return pushes
	}

	api, before, pushes := newAPI(r, s), r.head(ctx), settled()
	var value int64
	r.record(func(h *reliability.History) { value = h.Calls[1].Writes[0].Value })
	for range 5 {
		applySame(ctx, t, api, group, value)
	}
	if after := r.head(ctx); after != before {
		t.Errorf("the store went from revision %d to %d", before, after)
	}
	if n := settled(); n != pushes {
		t.Errorf("%d responses were sent", n-pushes)
	}

	w := r.newWriter(0)
	if class := w.write(ctx, s, reliability.Call{Writes: []reliability.Write{{Key: group[0], Verb: reliability.Put, Value: r.values.Add(1)}}}); class != reliability.OK {
		t.Fatal(class)
	}
	if err := await(ctx, 20*time.Second, func() error {
		if settled() == pushes {
			return errors.New("nothing is sent of a change either")
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	if err := await(ctx, 20*time.Second, func() error { return onlyChange(r, before, w.newest) }); err != nil {
		t.Error(err)
	}
}

// applySame applies unchanged objects, and expects the outcome unchanged.
func applySame(ctx context.Context, t *testing.T, api *client.Client, keys []reliability.Key, value int64) {
	t.Helper()
	var operations []batch.Operation
	for _, key := range keys {
		operation, err := operationOf(reliability.Write{Key: key, Verb: reliability.Put, Value: value})
		if err != nil {
			t.Fatal(err)
		}
		operations = append(operations, operation)
	}
	result, err := api.Apply(ctx, batch.New(operations...))
	if err != nil {
		t.Fatal(err)
	}
	for _, outcome := range result.Results {
		if outcome.Outcome != string(storage.Unchanged) {
			t.Errorf("%s %s is %s", outcome.Kind, outcome.Name, outcome.Outcome)
		}
	}
}

// onlyChange returns an error unless the ended watches got, after one revision, only the change
// at another.
func onlyChange(r *rig, after, revision int64) (err error) {
	r.record(func(h *reliability.History) {
		events := 0
		for _, w := range h.Watches {
			for _, e := range w.Events {
				if e.Type == reliability.Bookmark || e.Revision <= after {
					continue
				}
				if events++; e.Revision != revision {
					err = fmt.Errorf("a watch was told of revision %d", e.Revision)
				}
			}
		}
		if err == nil && events == 0 {
			err = errors.New("no watch has told anything")
		}
	})
	return err
}
