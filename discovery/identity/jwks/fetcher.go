package jwks

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	// DefaultRefresh is the age at which keys are fetched again if their source does not say how
	// long they stay fresh.
	DefaultRefresh = 20 * time.Minute
	// DefaultPause is the least time between two fetches of a source.
	DefaultPause = time.Minute
	// MaxRefresh bounds what a source says of how long its keys stay fresh. Options.Pause does so
	// below.
	MaxRefresh = 24 * time.Hour
	// emptyPause is the time between fetches of a source that has never given keys.
	emptyPause = 5 * time.Second
	// maxSources bounds the remembered sources, maxFetches the concurrent fetches.
	maxSources = 256
	maxFetches = 8
)

// ErrNoKeys means that a source has never given keys, and does not now.
var ErrNoKeys = errors.New("its keys cannot be fetched")

// Options configure a Fetcher. The zero value is valid.
type Options struct {
	// Refresh is the age at which keys are fetched again if their source does not say how long they
	// stay fresh (the max-age of Cache-Control). Pause is the least time between two
	// fetches of a source. 0 means the defaults.
	Refresh, Pause time.Duration
	// Now is the clock; nil stands for time.Now.
	Now func() time.Time
	// Logger may be nil.
	Logger *slog.Logger
}

// Fetcher keeps the keys of sources. It fetches only while Run runs.
type Fetcher struct {
	o    Options
	asks chan *entry

	mu      sync.Mutex // guards what follows
	sources map[Source]*entry
}

// entry is what is known of a source. All fields but source are guarded by the Fetcher's
// mutex.
type entry struct {
	source Source
	keys   *Keys         // the last good ones, nil for none
	err    error         // error of the last fetch
	begun  time.Time     // when the last fetch began
	good   time.Time     // when keys were last fetched
	fresh  time.Duration // how long they stay fresh
	ended  bool          // a fetch has ended
	asked  time.Time     // when somebody last asked for it
	under  chan struct{}
}

// New returns a Fetcher that knows no source.
func New(o Options) *Fetcher {
	o.Refresh, o.Pause = cmp.Or(o.Refresh, DefaultRefresh), cmp.Or(o.Pause, DefaultPause)
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Fetcher{o: o, asks: make(chan *entry, maxSources), sources: map[Source]*entry{}}
}

// Run does the requested fetches until ctx ends.
func (f *Fetcher) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(maxFetches)
	for {
		select {
		case <-ctx.Done():
			return group.Wait()
		case e := <-f.asks:
			group.Go(func() error {
				keys, fresh, err := fetchKeys(ctx, e.source)
				f.fetched(e, keys, fresh, err)
				return nil
			})
		}
	}
}

// Keys returns the keys of a source, including the key with the given id if the source has
// it; an empty id names no key. It waits for a fetch only if there are no keys, or if the
// key is unknown and the last fetch is a while ago. It returns ErrNoKeys, or the error of
// ctx.
func (f *Fetcher) Keys(ctx context.Context, source Source, id string) (*Keys, error) {
	e, wait := f.requestFetch(source, id)
	if wait != nil {
		select {
		case <-ctx.Done():
			if keys, _ := f.lastGood(e); keys != nil {
				return keys, nil
			}
			return nil, ctx.Err()
		case <-wait:
		}
	}
	return f.lastGood(e)
}

func (f *Fetcher) lastGood(e *entry) (*Keys, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if e.keys == nil {
		return nil, errors.Join(ErrNoKeys, e.err)
	}
	return e.keys, nil
}

// requestFetch requests a fetch if one is due. It returns a channel that is closed after the
// fetch if the caller needs its result, else nil.
func (f *Fetcher) requestFetch(source Source, id string) (*entry, <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.o.Now()
	e := f.sources[source]
	if e == nil {
		f.evictOldest()
		e = &entry{source: source}
		f.sources[source] = e
	}
	e.asked = now
	lacks := e.keys == nil || id != "" && !e.keys.has(id)
	due, pause := lacks || now.Sub(e.good) >= e.fresh, f.o.Pause
	if e.keys == nil {
		pause = min(pause, emptyPause)
	}
	if due && e.under == nil && (e.begun.IsZero() || now.Sub(e.begun) >= pause) {
		select {
		case f.asks <- e:
			e.under, e.begun = make(chan struct{}), now
		default: // too many sources are due; the next caller asks again
		}
	}
	if lacks && e.under != nil {
		return e, e.under
	}
	return e, nil
}

// evictOldest makes room for a source: it removes the one that nobody has used for the longest
// time.
func (f *Fetcher) evictOldest() {
	if len(f.sources) < maxSources {
		return
	}
	var oldest *entry
	for _, e := range f.sources {
		if e.under == nil && (oldest == nil || e.asked.Before(oldest.asked)) {
			oldest = e
		}
	}
	if oldest != nil {
		delete(f.sources, oldest.source)
	}
}

// If the fetch failed, the last good keys stay.
func (f *Fetcher) fetched(e *entry, keys *Keys, fresh time.Duration, err error) {
	if fresh < 0 {
		fresh = f.o.Refresh
	} else {
		fresh = min(max(fresh, f.o.Pause), MaxRefresh)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	e.ended = true
	if e.err = err; err == nil {
		e.keys, e.good, e.fresh = keys, f.o.Now(), fresh
	} else {
		f.o.Logger.Warn("keys of an issuer were not fetched: see that its URL answers", "url", e.source.URL, "err", err, "kept", e.keys != nil)
	}
	close(e.under)
	e.under = nil
}

// Follow keeps the keys of a source fetched even if nobody calls Keys. It never waits. Call it
// repeatedly; it fetches at most once in Options.Pause.
func (f *Fetcher) Follow(source Source) {
	f.mu.Lock()
	e := f.sources[source]
	waits := e != nil && !e.begun.IsZero() && f.o.Now().Sub(e.begun) < f.o.Pause
	f.mu.Unlock()
	if !waits {
		f.requestFetch(source, "")
	}
}

// Problem returns why the last fetch of a source failed, nil if it succeeded or there was
// none.
func (f *Fetcher) Problem(source Source) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if e := f.sources[source]; e != nil {
		return e.err
	}
	return nil
}

// Fetched returns the last good keys of a source, nil for none, and why its last fetch failed. It
// is false before the first fetch has ended. It causes no fetch.
func (f *Fetcher) Fetched(source Source) (keys *Keys, ended bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if e := f.sources[source]; e != nil {
		return e.keys, e.ended, e.err
	}
	return nil, false, nil
}
