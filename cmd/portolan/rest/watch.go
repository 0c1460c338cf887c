package rest

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"time"
	"weak"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/storage/refusal"
)

// watch streams the changes of the selected objects.
func (s *Server) watch(c *call) error {
	o, err := s.parseWatch(c)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(c.r.Context())
	defer cancel()
	if o.timeout > 0 {
		ctx, cancel = context.WithTimeout(ctx, o.timeout)
		defer cancel()
	}
	if until := c.identity.Until; !until.IsZero() {
		ctx, cancel = context.WithDeadline(ctx, until)
		defer cancel()
	}
	w := &watcher{call: c, still: func() error { return s.reauthorize(c) }, behind: func() []string { return s.behind(oneOrAll(c, o.selector)) }, cache: s.cache, frames: s.frames, origin: s.withOrigin, options: o, interval: s.bookmarks, outbox: outbox{w: c.w, cancel: cancel, slow: &s.watchers.slow}}
	remove, err := s.watchers.add(w)
	if err != nil {
		return err
	}
	defer remove()
	from, initial, err := s.start(ctx, o)
	if err != nil {
		return err
	}
	gauge := s.metrics.watchers.WithLabelValues(c.kind)
	gauge.Inc()
	defer gauge.Dec()
	setHeader(c.w, runtime.ContentTypeJSON)
	c.w.WriteHeader(http.StatusOK)
	if err := w.run(ctx, from, initial); err != nil {
		s.logger.Debug("watch ended", "path", c.r.URL.Path, "err", err)
	}
	return nil
}

type watchOptions struct {
	selector  selector
	revision  int64
	bookmarks bool
	// warnings says whether bookmarks have the warnings of reads, and one comes when these change.
	warnings bool
	// initial says whether the present objects come first.
	initial bool
	timeout time.Duration
}

func (s *Server) parseWatch(c *call) (o watchOptions, err error) {
	if o.selector, err = c.selector(); err != nil {
		return o, err
	}
	if o.revision, err = s.parseRevision(c.query); err != nil {
		return o, err
	}
	if c.query.Has("source") {
		return o, refusal.BadRequest("source is for lists: leave it out")
	}
	o.bookmarks = truthy(c.query, "allowWatchBookmarks")
	if o.warnings = truthy(c.query, "warnings"); o.warnings && !o.bookmarks {
		return o, refusal.Invalid("the warnings of a watch are in its bookmarks: add allowWatchBookmarks=true")
	}
	o.initial = o.revision == 0
	if c.query.Has("sendInitialEvents") {
		o.initial = truthy(c.query, "sendInitialEvents")
		if match := c.query.Get("resourceVersionMatch"); match != "NotOlderThan" {
			return o, refusal.Invalid(fmt.Sprintf("sendInitialEvents needs resourceVersionMatch NotOlderThan, and has %q", match))
		}
	} else if c.query.Has("resourceVersionMatch") {
		return o, refusal.Invalid("resourceVersionMatch is for watches with sendInitialEvents: leave it out")
	}
	if text := c.query.Get("timeoutSeconds"); text != "" {
		seconds, err := strconv.ParseUint(text, 10, 31)
		if err != nil {
			return o, refusal.BadRequest(fmt.Sprintf("timeoutSeconds %q is no number of seconds", text))
		}
		o.timeout = time.Duration(seconds) * time.Second
	}
	return o, nil
}

// start finds the snapshot that the client has seen: the watch sends the differences
// from it on. If initial is true the watch sends the objects of the snapshot first.
func (s *Server) start(ctx context.Context, o watchOptions) (from *cache.Snapshot, initial bool, err error) {
	newest, err := s.atLeast(ctx, o.revision)
	if err != nil {
		return nil, false, err
	}
	if o.initial || o.revision == 0 {
		return newest, o.initial, nil
	}
	from, ok := s.cache.Since(ctx, o.revision)
	if !ok {
		return nil, false, expired(fmt.Sprintf("too old resource version: %d: the history that is kept begins later: list again and watch from there", o.revision))
	}
	return from, false, nil
}

var errSlow = errors.New("the client of the watch reads too slowly, and others need the memory")

const (
	// watchPiece is how many bytes of small events are sent at once. An event of
	// largeFrame bytes or more is sent on its own, without a copy.
	watchPiece, largeFrame = 16 << 10, 4 << 10
	// warningsEvery is how often a watch looks for other warnings.
	warningsEvery = time.Second
)

// watcher serves one open watch.
type watcher struct {
	outbox
	call     *call
	still    func() error    // nil as long as the client may watch
	behind   func() []string // the warnings of a list now
	cache    Source
	frames   *frames
	origin   func(*config.Config) *config.Config // adds its source to an object
	options  watchOptions
	interval time.Duration

	out      bytes.Buffer // small events not sent yet
	warnings string       // as config.WarningsAnnotation has them; empty before the first look
	look     time.Time    // when to look for others
}

// run sends events until ctx ends, and then returns nil.
func (w *watcher) run(ctx context.Context, at *cache.Snapshot, initial bool) error {
	if initial {
		err := w.guard(at, func() error {
			return errors.Join(w.present(at), w.bookmark(at, map[string]string{metav1.InitialEventsAnnotationKey: "true"}))
		})
		if err != nil {
			return err
		}
	}
	if err := w.flush(); err != nil { // sends at least the header: the client then knows that it watches
		return err
	}
	due := time.Now().Add(w.interval)
	for ctx.Err() == nil {
		news := w.lookForWarnings()
		if news {
			if err := w.still(); err != nil {
				return w.broken(err)
			}
		}
		if news || !time.Now().Before(due) {
			if err := errors.Join(w.bookmark(at, nil), w.flush()); err != nil {
				return err
			}
			due = time.Now().Add(w.interval)
		}
		next, err := w.next(ctx, at, w.wake(due))
		switch {
		case next == nil && err == nil:
			continue
		case err != nil:
			return w.broken(err)
		}
		if err := w.still(); err != nil {
			return w.broken(err)
		}
		advance := w.step
		if _, known := w.cache.At(at.Revision()); !known && next.Changed() != at.Revision()+1 {
			advance = w.stepOverGap
		}
		if err := w.guard(at, func() error { return errors.Join(advance(at, next), w.flush()) }); err != nil {
			return err
		}
		at = next
	}
	return nil
}

// guard ends the watch if it is still sending a snapshot's differences when the history
// has dropped that snapshot. A slow client must not keep the snapshot in memory, and
// would have to list again anyway.
func (w *watcher) guard(at *cache.Snapshot, send func() error) error {
	done := make(chan struct{})
	defer close(done)
	w.watchForgotten(at, done)
	defer w.frames.pace()()
	return send()
}

// watchForgotten cuts the watch if the history drops a snapshot while a write is
// blocked. It checks every slowAfter, until done.
func (w *watcher) watchForgotten(at *cache.Snapshot, done <-chan struct{}) {
	time.AfterFunc(slowAfter, func() {
		select {
		case <-done:
			return
		default:
		}
		if _, known := w.cache.At(at.Revision()); !known && w.since() != math.MaxInt64 {
			w.cut()
			return
		}
		w.watchForgotten(at, done)
	})
}

// lookForWarnings looks for warnings if the client wants them and it is time, and says whether they are
// others than before.
func (w *watcher) lookForWarnings() (news bool) {
	if !w.options.warnings || time.Now().Before(w.look) {
		return false
	}
	w.look = time.Now().Add(warningsEvery)
	text, _ := json.Marshal(append([]string{}, w.behind()...)) // texts always encode
	was := w.warnings
	w.warnings = string(text)
	return w.warnings != was
}

// wake returns when to look whether a bookmark is due: for its time, or for other warnings.
func (w *watcher) wake(due time.Time) time.Time {
	if w.options.warnings && w.look.Before(due) {
		return w.look
	}
	return due
}

// next waits for the snapshot after at, until a time.
func (w *watcher) next(ctx context.Context, at *cache.Snapshot, until time.Time) (*cache.Snapshot, error) {
	wait, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	next, err := w.cache.Next(wait, at)
	if err != nil && wait.Err() != nil && !errors.Is(err, storage.ErrCompacted) {
		return nil, nil
	}
	return next, err
}

// present adds an event for each object of a snapshot, in key order.
func (w *watcher) present(at *cache.Snapshot) error {
	for change := range changes(nil, at) {
		if _, kind, object := w.eventsOf(change); object != nil {
			if err := w.event(w.key(at, change.Key, kind), object); err != nil {
				return err
			}
		}
	}
	return nil
}

// step adds the events that lead from one snapshot to the next. Removed objects get the
// revision that made the content of the next.
func (w *watcher) step(from, to *cache.Snapshot) error {
	return w.addDifference(from, to, to.Changed())
}

// stepOverGap is step for a cache that was listed again: the objects are of several revisions,
// and the changes between are unknown. Removals come first, at the previous revision.
func (w *watcher) stepOverGap(from, to *cache.Snapshot) error {
	return w.addDifference(from, to, from.Revision())
}

// addDifference adds the events in the order of their revisions, and then of their keys. A
// client that is cut off in between misses nothing: it must list from its revision, or
// it resumes at the last one, and gets the objects of that again.
func (w *watcher) addDifference(from, to *cache.Snapshot, goneAt int64) error {
	type present struct {
		key      frameKey
		object   *config.Config
		revision int64
	}
	var all []present
	for change := range changes(from, to) {
		gone, kind, object := w.eventsOf(change)
		if gone != nil {
			last := *gone
			last.ResourceVersion = strconv.FormatInt(goneAt, 10)
			key := w.key(from, change.Key, watch.Deleted)
			key.goneAt = goneAt
			all = append(all, present{key, &last, goneAt})
		}
		if object != nil {
			revision, _ := object.Revision() // 0 for objects of other sources
			all = append(all, present{w.key(to, change.Key, kind), object, revision})
		}
	}
	slices.SortStableFunc(all, func(a, b present) int { return cmp.Compare(a.revision, b.revision) })
	for _, p := range all {
		if err := w.event(p.key, p.object); err != nil {
			return err
		}
	}
	return nil
}

// eventsOf returns the events of a change: the removed object, nil for none, and the
// present object, nil if the client need not see it.
func (w *watcher) eventsOf(change pmap.Change[*config.Config]) (gone *config.Config, kind watch.EventType, object *config.Config) {
	if !w.concerns(change.Old) && !w.concerns(change.New) {
		return nil, "", nil
	}
	before, now := w.options.selector.matches(change.Old), w.options.selector.matches(change.New)
	switch {
	case before && now && change.Old.UID != change.New.UID:
		return change.Old, watch.Added, change.New
	case before && now && change.Old.ResourceVersion == change.New.ResourceVersion:
		return nil, "", nil
	case before && now:
		return nil, watch.Modified, change.New
	case now:
		return nil, watch.Added, change.New
	case before:
		return change.Old, "", nil
	}
	return nil, "", nil
}

// concerns says whether an object is of the watched kind and namespace.
func (w *watcher) concerns(object *config.Config) bool {
	c := w.call
	return object != nil && object.Kind == c.schema.Kind && object.Group == c.schema.Group &&
		(c.namespace == "" || object.Namespace == c.namespace)
}

func (w *watcher) key(in *cache.Snapshot, path string, kind watch.EventType) frameKey {
	return frameKey{snapshot: weak.Make(in), path: path, version: w.call.version, kind: kind}
}

// event adds an event, and sends the collected events when there are many.
func (w *watcher) event(key frameKey, object *config.Config) error {
	form := w.call.form
	key.shape = form.shape
	w.call.form.defined = false // the first event alone has the definitions
	frame, err := w.frames.get(key, func() ([]byte, error) {
		text, err := form.single(w.origin(object), key.version)
		return framed(key.kind, text), err
	})
	if err != nil {
		return err
	}
	defer w.frames.put(frame)
	if len(frame.text) >= largeFrame {
		if err := w.flush(); err != nil {
			return err
		}
		return w.write(frame.text)
	}
	if w.out.Write(frame.text); w.out.Len() >= watchPiece {
		return w.flush()
	}
	return nil
}

// bookmark adds an event which says that everything up to the revision was sent, if the
// client wants bookmarks.
func (w *watcher) bookmark(at *cache.Snapshot, annotations map[string]string) error {
	if !w.options.bookmarks {
		return nil
	}
	if w.warnings != "" {
		annotations = map[string]string{config.WarningsAnnotation: w.warnings}
	}
	text, err := w.call.bookmark(at.Version(), annotations)
	if err != nil {
		return err
	}
	w.call.form.defined = false
	w.out.Write(framed(watch.Bookmark, text))
	return nil
}

// broken ends the watch with an event that says why.
func (w *watcher) broken(cause error) error {
	text, err := json.Marshal(statusOf(w.call, cause))
	if err != nil {
		return err
	}
	w.out.Write(framed(watch.Error, text))
	return errors.Join(cause, w.flush())
}

// framed returns the line of an event.
func framed(kind watch.EventType, object []byte) []byte {
	out := make([]byte, 0, len(object)+len(`{"type":"BOOKMARK","object":}`)+1)
	out = append(out, `{"type":"`...)
	out = append(out, kind...)
	out = append(out, `","object":`...)
	out = append(out, object...)
	return append(out, '}', '\n')
}

// flush sends the collected events at once.
func (w *watcher) flush() error {
	err := w.write(w.out.Bytes())
	w.out = bytes.Buffer{} // an idle watch holds no buffer
	return err
}
