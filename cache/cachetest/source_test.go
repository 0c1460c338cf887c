package cachetest_test

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/cache/cachetest"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/memory"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// polled is a complete source of configuration: a cache of the answers of a program that
// is polled, such as a web server.
type polled struct {
	*cache.Feed
	ask     func(context.Context) ([]byte, error) // all objects, as documents of YAML
	every   time.Duration
	trouble atomic.Value // fault

	revision int64 // used by Run
}

func newPolled(worker *cache.Worker, ask func(context.Context) ([]byte, error), every time.Duration) *polled {
	return &polled{Feed: cache.NewFeed(cache.FeedOptions{Worker: worker, Schemas: schema.Pilot()}), ask: ask, every: every}
}

// Run polls until ctx ends, and then returns nil. When an answer cannot be read, the
// previous content stays.
func (p *polled) Run(ctx context.Context) error {
	if err := p.Seal(); err != nil {
		return err
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	var last []byte
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		text, err := p.ask(ctx)
		if err == nil && (p.Snapshot() == nil || !bytes.Equal(text, last)) {
			err = p.take(text)
		}
		if last = text; err != nil {
			last = nil
		}
		p.trouble.Store(fault{err})
		timer.Reset(p.every)
	}
}

// fault is an error or nil: an atomic.Value takes values of one type.
type fault struct{ error }

// take publishes a snapshot of the documents. It derives it from the previous one, so
// the cost of handling it follows the difference.
func (p *polled) take(text []byte) error {
	documents, err := config.DecodeExported("the answer", text, p.Schemas().Type)
	if err != nil {
		return err
	}
	from := p.Snapshot() // nil for the first
	configs, seen := from.Configs(), map[string]bool{}
	for _, d := range documents {
		object, path := d.Config, d.Config.Key().Path()
		if _, err := p.Schemas().Kind(object.GroupVersionKind).Validate(object); err != nil {
			return d.Fault("", err.Error())
		}
		seen[path] = true
		if held := configs.Value(path); held == nil || held.ResourceVersion != object.ResourceVersion {
			configs = configs.Set(path, object)
		}
	}
	for path := range configs.Keys() {
		if !seen[path] {
			configs = configs.Delete(path)
		}
	}
	if from == nil || configs != from.Configs() {
		p.revision++
		p.Publish(from.Next(p.revision, cache.Content{Configs: configs}))
	}
	return nil
}

// Degraded says why the content may be old, nil if it is not.
func (p *polled) Degraded() error {
	now, _ := p.trouble.Load().(fault)
	return now.error
}

func answered(store *memory.Store) (text []byte, version string, err error) {
	for {
		text, version = nil, store.Version()
		objects, err := store.List(context.Background(), schema.ServiceEntry, "")
		if err != nil {
			return nil, "", err
		}
		for _, object := range objects {
			one, err := config.ToYAML(object)
			if err != nil {
				return nil, "", err
			}
			text = append(append(text, "---\n"...), one...)
		}
		if store.Version() == version {
			return text, version, nil
		}
	}
}

// TestASourceOfAHundredLines runs the suite of caches on the source above.
func TestASourceOfAHundredLines(t *testing.T) {
	t.Parallel()
	cachetest.Run(t, func(t testing.TB) cachetest.Subject {
		store, worker := memory.New(schema.Pilot(), memory.Options{}), cache.NewWorker()
		var shown atomic.Int64 // the version of the last answer but one
		var next atomic.Int64
		c := newPolled(worker, func(context.Context) ([]byte, error) {
			text, version, err := answered(store)
			shown.Store(next.Load())
			next.Store(cachetest.Revision(t, version))
			return text, err
		}, time.Millisecond)
		return cachetest.Subject{Cache: c, Store: store, Worker: worker, ReadOnly: true, Settled: func(ctx context.Context, version string) (*cache.Snapshot, error) {
			want, err := strconv.ParseInt(version, 10, 64)
			if err != nil {
				return nil, err
			}
			for shown.Load() < want {
				select {
				case <-ctx.Done():
					return nil, fmt.Errorf("the source is at %d, want %d: %w", shown.Load(), want, ctx.Err())
				case <-time.After(100 * time.Microsecond):
				}
			}
			return c.Snapshot(), nil
		}}
	})
}

// TestAPolledSourceKeepsWhatItHas: while it cannot be read, and it says so.
func TestAPolledSourceKeepsWhatItHas(t *testing.T) {
	t.Parallel()
	var answer atomic.Value
	answer.Store("")
	worker := cache.NewWorker()
	c := newPolled(worker, func(context.Context) ([]byte, error) { return []byte(answer.Load().(string)), nil }, time.Millisecond)
	r := cachetest.NewRig(t, cachetest.Subject{Cache: c, Worker: worker})
	r.Start()
	text, err := config.ToYAML(cachetest.ServiceEntry("a", "x", 1))
	if err != nil {
		t.Fatal(err)
	}
	answer.Store(string(text))
	has := func() bool { return cachetest.Round(c.Snapshot().Get(cachetest.Key("a", "x"))) == "1" }
	r.Eventually("the object is there", has)
	answer.Store("kind: [")
	r.Eventually("it says what is wrong", func() bool { return c.Degraded() != nil })
	if !has() {
		t.Error("the object is gone")
	}
	answer.Store("# nothing")
	r.Eventually("the object is gone, and all is well", func() bool { return !has() && c.Degraded() == nil })
}
