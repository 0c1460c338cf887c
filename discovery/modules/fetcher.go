package modules

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/errlist"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/storage/retry"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/storage/wasm"
)

const (
	// maxModules bounds the modules that are fetched, and maxFetches the concurrent fetches.
	maxModules = 64
	maxFetches = 8
)

// Options configure a Fetcher.
type Options struct {
	// Worker runs Fetcher.Follow at the end of each task. The Fetcher posts a task when a fetch ends.
	Worker *cache.Worker
	// Configs returns the configuration that all handlers have seen.
	Configs func() *cache.Snapshot
	// Retry is the first wait before a fetch that failed is tried again, and Longest the longest; 0
	// stands for a second and a minute.
	Retry, Longest time.Duration
	// Logger may be nil.
	Logger *slog.Logger
}

// Fetcher fetches the modules that WasmPlugins name. It fetches only while Run runs.
type Fetcher struct {
	o    Options
	wake chan struct{} // holds a token whenever wanted may differ

	configs *cache.Snapshot // that Follow has seen; only the worker uses it

	mu      sync.Mutex // guards what follows
	plugins pmap.Map[*config.Config]
	set     Set
	wanted  map[wasm.Source]bool // the modules that are not there
	written map[wasm.Source]bool // those of plugins that were written since Run looked
	ended   bool                 // a fetch has ended since the last Follow
	synced  bool
}

// New returns a Fetcher that knows no module.
func New(o Options) *Fetcher {
	o.Retry, o.Longest = cmp.Or(o.Retry, time.Second), cmp.Or(o.Longest, time.Minute)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Fetcher{o: o, wake: make(chan struct{}, 1), written: map[wasm.Source]bool{}}
}

// Set returns what the Fetcher knows as of the last Follow.
func (f *Fetcher) Set() Set {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.set
}

// HasSynced says whether each module that WasmPlugins named at the first Follow was fetched, or could
// not be. Until then a server would give proxies less than it can.
func (f *Fetcher) HasSynced() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.synced
}

// Follow takes over the configuration, and the modules that were fetched. It is a hook of the worker,
// before the one that commits.
func (f *Fetcher) Follow() {
	configs := f.o.Configs()
	if configs == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	changed := f.ended || f.configs == nil
	for c := range pmap.Diff(f.configs.Configs(), configs.Configs()) {
		switch {
		case !strings.HasPrefix(c.Key, PathPrefix):
			continue
		case c.HasNew:
			f.plugins = f.plugins.Set(c.Key, c.New)
			f.written[sourceOf(c.New)] = true
		default:
			f.plugins = f.plugins.Delete(c.Key)
		}
		changed = true
	}
	if f.configs, f.ended = configs, false; !changed {
		return
	}
	f.settle()
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// PathPrefix begins the paths of WasmPlugins.
var PathPrefix = schema.WasmPlugin.Group + "/" + schema.WasmPlugin.Kind + "/"

// settle finds which versions of the WasmPlugins count and which modules are wanted, and forgets what
// nobody needs any more.
func (f *Fetcher) settle() {
	needed, faults := map[string]bool{}, map[string]bool{}
	f.wanted = map[wasm.Source]bool{}
	lacking := pmap.Map[*config.Config]{}
	for path, c := range f.plugins.All() {
		source := sourceOf(c)
		if f.set.Has(c) {
			f.set = f.set.Serving(c)
		} else if source != (wasm.Source{}) {
			lacking = lacking.Set(path, c)
			faults[faultKey(source)] = true
			if len(f.wanted) < maxModules || f.wanted[source] {
				f.wanted[source] = true
			} else {
				f.set.faults = f.set.faults.Set(faultKey(source), fmt.Sprintf("%s: it is not fetched, since more than %d modules are awaited", source.URL, maxModules))
			}
		}
		needed[source.Sum] = true
	}
	if !pmap.Equal(lacking, f.set.lacking) {
		f.set.lacking = lacking
	}
	for path, c := range f.set.served.All() {
		if _, there := f.plugins.Get(path); !there {
			f.set.served = f.set.served.Delete(path)
			continue
		}
		needed[sourceOf(c).Sum] = true
	}
	for sum := range f.set.modules.Keys() {
		if !needed[sum] {
			f.set.modules = f.set.modules.Delete(sum)
		}
	}
	for key := range f.set.faults.Keys() {
		if !faults[key] {
			f.set.faults = f.set.faults.Delete(key)
		}
	}
	f.synced = f.synced || f.tried()
}

// tried says whether each wanted module was tried.
func (f *Fetcher) tried() bool {
	for source := range f.wanted {
		if f.set.faults.Value(faultKey(source)) == "" {
			return false
		}
	}
	return true
}

// Run fetches what is wanted until ctx ends, and waits for its fetches.
func (f *Fetcher) Run(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	slots := make(chan struct{}, maxFetches)
	client, err := newClient()
	if err != nil {
		return err
	}
	defer client.Close()
	fetches := map[wasm.Source]underWay{}
	defer func() {
		for _, one := range fetches {
			one.stop()
		}
	}()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-f.wake:
		}
		wanted, written := f.lacks()
		for source, one := range fetches {
			if !wanted[source] || one.Err() != nil { // it has ended, and the module was forgotten since
				one.stop()
				delete(fetches, source)
			}
		}
		for source := range wanted {
			if one, under := fetches[source]; under {
				if written[source] {
					one.hurry()
				}
				continue
			}
			one := newFetch(ctx)
			fetches[source] = one
			running.Go(func() {
				defer one.stop()
				f.fetch(one, slots, source, func() (*Module, error) { return get(one, client, source) })
			})
		}
	}
}

// underWay is a fetch with all its attempts. Its context ends with it.
type underWay struct {
	context.Context
	stop context.CancelFunc
	soon chan struct{} // holds a token if the next attempt should not wait
}

func newFetch(ctx context.Context) underWay {
	one, stop := context.WithCancel(ctx)
	return underWay{one, stop, make(chan struct{}, 1)}
}

// hurry ends the wait for the next attempt: somebody who wrote the plugin again may have mended what
// was wrong.
func (u underWay) hurry() {
	select {
	case u.soon <- struct{}{}:
	default:
	}
}

// lacks returns the wanted modules that are not there, and those of plugins that were written since
// the last call.
func (f *Fetcher) lacks() (wanted, written map[wasm.Source]bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	wanted, written = map[wasm.Source]bool{}, f.written
	for source := range f.wanted {
		if f.set.modules.Value(source.Sum) == nil {
			wanted[source] = true
		}
	}
	f.written = map[wasm.Source]bool{}
	return wanted, written
}

// fetch tries to fetch a module until it succeeds, or its context ends.
func (f *Fetcher) fetch(one underWay, slots chan struct{}, source wasm.Source, attempt func() (*Module, error)) {
	for wait := retry.New(f.o.Retry, f.o.Longest); ; {
		select {
		case <-one.Done():
			return
		case slots <- struct{}{}:
		}
		module, err := attempt()
		<-slots
		if one.Err() != nil {
			return
		}
		f.note(source, module, err)
		if err == nil {
			return
		}
		select {
		case <-one.Done():
			return
		case <-time.After(wait.Next()):
		case <-one.soon:
			wait.Reset()
		}
	}
}

// note takes the outcome of a fetch, for the next Follow.
func (f *Fetcher) note(source wasm.Source, module *Module, err error) {
	f.mu.Lock()
	if err == nil {
		f.set = f.set.With(module)
		f.o.Logger.Info("fetched the module of a WasmPlugin", "url", source.URL, "sha256", source.Sum, "bytes", len(module.Bytes))
	} else if cause := errlist.Cause(err); f.set.faults.Value(faultKey(source)) != cause {
		f.set.faults = f.set.faults.Set(faultKey(source), cause)
		f.o.Logger.Warn("the module of a WasmPlugin was not fetched, it will be tried again: see that its URL answers", "err", err)
	}
	f.ended = true
	f.mu.Unlock()
	f.o.Worker.Post(f, func() {}) // the task ends with Follow
}
