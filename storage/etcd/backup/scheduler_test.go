package backup_test

import (
	"context"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/portolan-mesh/portolan/storage/etcd/backup"
	"github.com/portolan-mesh/portolan/storage/etcd/etcdtest"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// clock is a time that tests set.
type clock struct{ seconds atomic.Int64 }

func (c *clock) now() time.Time { return time.Unix(c.seconds.Load(), 0) }

func newScheduler(t *testing.T, endpoint string, o backup.Schedule) *backup.Scheduler {
	t.Helper()
	o.Schemas = schema.Pilot()
	s, err := backup.NewScheduler(etcdtest.Dial(t, endpoint), o, nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestSchedulerKeepsTheNewest: it touches no other file, and remembers over a restart
// when the next snapshot is due.
func TestSchedulerKeepsTheNewest(t *testing.T) {
	t.Parallel()
	c := &clock{}
	c.seconds.Store(time.Date(2026, 11, 21, 7, 0, 0, 0, time.UTC).Unix())
	dir, endpoint := filepath.Join(t.TempDir(), "new"), etcdtest.Listen(t)
	o := backup.Schedule{Dir: dir, Interval: time.Hour, Keep: 2, Now: c.now}
	s := newScheduler(t, endpoint, o)
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(s)
	for i := range 4 {
		if err := s.Save(t.Context()); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			if err := os.WriteFile(filepath.Join(dir, "portolan-mine.backup"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		c.seconds.Add(3600)
	}
	remains(t, dir, "portolan-20261121T090000Z.backup", "portolan-20261121T100000Z.backup", "portolan-mine.backup")
	if got, err := backup.Inspect(s.Last().File, schema.Pilot()); err != nil || got.Revision != s.Last().Revision {
		t.Errorf("%+v, %v", got, err)
	}
	families, err := registry.Gather()
	if err != nil || len(families) != 2 {
		t.Fatalf("%v, %v", families, err)
	}
	if failures := families[0].GetMetric()[0].GetCounter().GetValue(); failures != 0 {
		t.Errorf("%v failures", failures)
	}
	if at := families[1].GetMetric()[0].GetGauge().GetValue(); at != float64(s.Last().Time.Unix()) {
		t.Errorf("the newest is of %v, want %v", at, s.Last().Time)
	}

	// Another process on the same directory makes the next one when it is due.
	c.seconds.Add(-1800)
	again := newScheduler(t, endpoint, o)
	ctx, stop := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- again.Run(ctx) }()
	for again.Last().Time.IsZero() {
		time.Sleep(time.Millisecond)
	}
	stop()
	if err := <-ran; err != nil || again.Last().File != filepath.Join(dir, "portolan-20261121T100000Z.backup") {
		t.Errorf("%v, %+v", err, again.Last())
	}
}

// TestSchedulerTriesAgain: meanwhile it says what was wrong.
func TestSchedulerTriesAgain(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "taken")
	if err := os.WriteFile(dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s := newScheduler(t, etcdtest.Listen(t), backup.Schedule{Dir: dir, Interval: 100 * time.Millisecond, Keep: 1})
	ctx, stop := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- s.Run(ctx) }()
	await := func(what string, condition func() bool) {
		for end := time.Now().Add(20 * time.Second); !condition(); time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%s: %+v", what, s.Last())
			}
		}
	}
	await("a failure", func() bool { return s.Last().Err != nil })
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	await("a success", func() bool { return s.Last().Err == nil && !s.Last().Time.IsZero() })
	stop()
	if err := <-ran; err != nil {
		t.Error(err)
	}
}
