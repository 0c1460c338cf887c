package backup

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/portolan-mesh/portolan/storage/etcd/escrow"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// Schedule says when to make snapshots, and which to keep.
type Schedule struct {
	// Dir is the directory of the files; it is made if it does not exist. It belongs to
	// one server, which removes only its own files from it.
	Dir string
	// Interval is the time between two snapshots, also across restarts of the server.
	Interval time.Duration
	// Keep is how many of the newest snapshots stay.
	Keep int
	// Envelope makes what each backup has besides the snapshot, before it is written; nil for
	// plain snapshots.
	Envelope func() (*escrow.Envelope, error)
	// Schemas are as in WriteOptions.
	Schemas schema.Set
	// Now is the clock; nil is time.Now.
	Now func() time.Time
}

// The names of the files are their times, and sort by time.
const (
	namePattern = "portolan-*.backup"
	nameLayout  = "portolan-20060102T150405Z.backup"
)

// Last describes the latest attempts.
type Last struct {
	// Time, File and Revision describe the newest snapshot; zero if there is none yet.
	// Revision is 0 for a snapshot of an earlier process.
	Time     time.Time
	File     string
	Revision int64
	// Err is why the latest attempt failed, nil where it did not.
	Err error
}

// A Scheduler makes snapshots of a store, one every interval. It is a
// prometheus.Collector.
type Scheduler struct {
	client *clientv3.Client
	o      Schedule
	log    *slog.Logger
	last   atomic.Pointer[Last]
	failed atomic.Int64
}

// NewScheduler returns a Scheduler that waits for Run. The caller closes the client.
func NewScheduler(client *clientv3.Client, o Schedule, logger *slog.Logger) (*Scheduler, error) {
	if o.Dir == "" || o.Interval <= 0 || o.Keep < 1 {
		return nil, errors.New("backup: a directory, an interval, and one snapshot to keep at least are required")
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	s := &Scheduler{client: client, o: o, log: logger}
	s.last.Store(&Last{})
	return s, nil
}

// Last describes the latest attempts.
func (s *Scheduler) Last() Last { return *s.last.Load() }

// Run makes snapshots until ctx ends, and then returns nil. It retries a failed one
// after a tenth of the interval.
func (s *Scheduler) Run(ctx context.Context) error {
	s.recall()
	for {
		timer := time.NewTimer(s.untilNext())
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C:
		}
		if err := s.Save(ctx); err != nil && ctx.Err() == nil {
			s.log.Error("the store was not backed up; it will be tried again", "dir", s.o.Dir, "err", err)
		}
	}
}

// recall finds the newest snapshot of an earlier process.
func (s *Scheduler) recall() {
	files := s.files()
	if len(files) == 0 {
		return
	}
	newest := files[len(files)-1]
	at, err := time.Parse(nameLayout, filepath.Base(newest))
	if err == nil && !at.After(s.o.Now()) {
		s.last.Store(&Last{Time: at, File: newest})
	}
}

func (s *Scheduler) untilNext() time.Duration {
	last := s.Last()
	switch {
	case last.Err != nil:
		return s.o.Interval / 10
	case last.Time.IsZero():
		return 0
	}
	return max(0, last.Time.Add(s.o.Interval).Sub(s.o.Now()))
}

// Save makes a snapshot now, and removes the oldest ones beyond Schedule.Keep.
func (s *Scheduler) Save(ctx context.Context) error {
	last := s.Last()
	at := s.o.Now().UTC().Truncate(time.Second)
	file := filepath.Join(s.o.Dir, at.Format(nameLayout))
	summary, err := s.save(ctx, file)
	if last.Err = err; err == nil {
		last = Last{Time: at, File: file, Revision: summary.Revision}
		err = s.prune()
		s.log.Info("store backed up", "file", file, "revision", summary.Revision, "bytes", summary.Size)
	} else {
		s.failed.Add(1)
	}
	s.last.Store(&last)
	return err
}

func (s *Scheduler) save(ctx context.Context, file string) (summary *Summary, err error) {
	if err := os.MkdirAll(s.o.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("backup: %w", err)
	}
	var envelope *escrow.Envelope
	if s.o.Envelope != nil {
		if envelope, err = s.o.Envelope(); err != nil {
			return nil, fmt.Errorf("backup: %w", err)
		}
	}
	body, revision, err := Take(ctx, s.client)
	if err != nil {
		return nil, err
	}
	defer func() { _ = body.Close() }()
	return Write(body, file, WriteOptions{Envelope: envelope, Replace: true, MinRevision: revision, Schemas: s.o.Schemas})
}

// files returns the snapshots in the directory, oldest first.
func (s *Scheduler) files() []string {
	files, _ := filepath.Glob(filepath.Join(s.o.Dir, namePattern)) // the pattern is sound
	files = slices.DeleteFunc(files, func(file string) bool {
		_, err := time.Parse(nameLayout, filepath.Base(file))
		return err != nil
	})
	slices.Sort(files)
	return files
}

func (s *Scheduler) prune() error {
	files := s.files()
	var failed error
	for _, file := range files[:max(0, len(files)-s.o.Keep)] {
		failed = errors.Join(failed, os.Remove(file))
	}
	return failed
}

var (
	successDesc = prometheus.NewDesc("portolan_backup_last_success_timestamp_seconds",
		"When the newest scheduled backup was made; absent before the first.", nil, nil)
	failuresDesc = prometheus.NewDesc("portolan_backup_failures_total", "Scheduled backups that failed.", nil, nil)
)

// Describe implements prometheus.Collector.
func (s *Scheduler) Describe(out chan<- *prometheus.Desc) {
	out <- successDesc
	out <- failuresDesc
}

// Collect implements prometheus.Collector.
func (s *Scheduler) Collect(out chan<- prometheus.Metric) {
	if last := s.Last(); !last.Time.IsZero() {
		out <- prometheus.MustNewConstMetric(successDesc, prometheus.GaugeValue, float64(last.Time.Unix()))
	}
	out <- prometheus.MustNewConstMetric(failuresDesc, prometheus.CounterValue, float64(s.failed.Load()))
}
