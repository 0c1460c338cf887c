package external_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/portolan-mesh/portolan/storage/etcd/etcdtest"
	"github.com/portolan-mesh/portolan/storage/etcd/external"
	"github.com/portolan-mesh/portolan/storage/logtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a condition may take to come true.
const patience = 30 * time.Second

func passwordOf(user string) func() (string, error) {
	return func() (string, error) { return etcdtest.Passwords(user), nil }
}

// start makes a Cluster and starts it, and runs it unless Start fails.
func start(t *testing.T, o external.Options) (*external.Cluster, error) {
	t.Helper()
	o.Interval, o.Grace = 50*time.Millisecond, 200*time.Millisecond
	cluster, err := external.New(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		running.Wait()
		_ = cluster.Close()
	})
	if err := cluster.Start(ctx); err != nil {
		return cluster, err
	}
	running.Go(func() { _ = cluster.Run(ctx) })
	return cluster, nil
}

// eventually waits until check returns nil.
func eventually(t *testing.T, what string, check func() error) {
	t.Helper()
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	deadline := time.After(patience)
	for {
		err := check()
		if err == nil {
			return
		}
		select {
		case <-deadline:
			t.Fatalf("%s: not within %s: %v", what, patience, err)
		case <-ticker.C:
		}
	}
}

// awaitReason waits until a cluster cannot be used and the reason contains these words.
func awaitReason(t *testing.T, c *external.Cluster, words string) {
	t.Helper()
	eventually(t, "the cluster cannot be used: "+words, func() error {
		if err := c.Ready(); err == nil || !strings.Contains(err.Error(), words) {
			return fmt.Errorf("it says %w", errors.Join(err))
		}
		return nil
	})
}

func awaitReady(t *testing.T, c *external.Cluster) {
	t.Helper()
	eventually(t, "the cluster can be used", c.Ready)
}

func newLines() (*logtest.Log, *slog.Logger) {
	l := &logtest.Log{}
	return l, slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug}))
}
