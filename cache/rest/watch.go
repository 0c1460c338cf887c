package rest

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/pmap"
)

// watch streams the changes of the objects that are selected.
func (s *Server) watch(c *call) error {
	o, err := parseWatch(c)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(c.r.Context())
	defer cancel()
	if o.timeout > 0 {
		ctx, cancel = context.WithTimeout(ctx, o.timeout)
		defer cancel()
	}
	defer s.watchers.add(cancel)()
	from, initial, err := s.start(ctx, o)
	if err != nil {
		return err
	}
	gauge := s.metrics.watchers.WithLabelValues(c.kind)
	gauge.Inc()
	defer gauge.Dec()
	w := &watcher{call: c, cache: s.cache, options: o, interval: s.bookmarks}
	c.w.Header().Set("Content-Type", "application/json")
	c.w.Header().Set("Cache-Control", "no-cache, private")
	c.w.Header().Set("X-Content-Type-Options", "nosniff")
	c.w.WriteHeader(http.StatusOK)
	if err := w.run(ctx, from, initial); err != nil {
		s.logger.Debug("watch ended", "path", c.r.URL.Path, "err", err)
	}
	return nil
}

// watchOptions are what a client asks of a watch.
type watchOptions struct {
	selector  selector
	revision  int64
	bookmarks bool
	// initial says whether the present objects come first.
	initial bool
	timeout time.Duration
}

func parseWatch(c *call) (o watchOptions, err error) {
	if o.selector, err = parseSelector(c.query); err != nil {
		return o, err
	}
	if o.revision, err = parseRevision(c.query); err != nil {
		return o, err
	}
	o.bookmarks = truthy(c.query, "allowWatchBookmarks")
	o.initial = o.revision == 0
	if c.query.Has("sendInitialEvents") {
		o.initial = truthy(c.query, "sendInitialEvents")
		if match := c.query.Get("resourceVersionMatch"); match != "NotOlderThan" {
			return o, badRequest(fmt.Sprintf("sendInitialEvents needs resourceVersionMatch NotOlderThan, and has %q", match))
		}
	} else if c.query.Has("resourceVersionMatch") {
		return o, badRequest("resourceVersionMatch is for watches with sendInitialEvents: leave it out")
	}
	if text := c.query.Get("timeoutSeconds"); text != "" {
		seconds, err := strconv.ParseUint(text, 10, 31)
		if err != nil {
			return o, badRequest(fmt.Sprintf("timeoutSeconds %q is no number of seconds", text))
		}
		o.timeout = time.Duration(seconds) * time.Second
	}
	return o, nil
}

// start finds the snapshot whose difference to those that follow is what the
// client has not seen. Where initial is true the client is first sent what is
// in it.
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

// watcher is one open watch.
type watcher struct {
	call     *call
	cache    Source
	options  watchOptions
	interval time.Duration

	out bytes.Buffer // events not sent yet
}

// run sends events until ctx ends, and then returns nil.
func (w *watcher) run(ctx context.Context, at *cache.Snapshot, initial bool) error {
	if initial {
		if err := w.present(at); err != nil {
			return err
		}
		if err := w.bookmark(at, map[string]string{metav1.InitialEventsAnnotationKey: "true"}); err != nil {
			return err
		}
	}
	if err := w.flush(); err != nil { // the header at least: the client knows that it watches
		return err
	}
	due := time.Now().Add(w.interval)
	for ctx.Err() == nil {
		if !time.Now().Before(due) {
			if err := errors.Join(w.bookmark(at, nil), w.flush()); err != nil {
				return err
			}
			due = time.Now().Add(w.interval)
		}
		next, err := w.next(ctx, at, due)
		switch {
		case next == nil && err == nil:
			continue
		case err != nil:
			return w.broken(err)
		}
		advance := w.step
		if _, known := w.cache.At(at.Revision()); !known && next.Changed() != at.Revision()+1 {
			advance = w.leap
		}
		if err := errors.Join(advance(at, next), w.flush()); err != nil {
			return err
		}
		at = next
	}
	return nil
}

// next waits for the snapshot after at, until a bookmark is due.
func (w *watcher) next(ctx context.Context, at *cache.Snapshot, due time.Time) (*cache.Snapshot, error) {
	wait, cancel := context.WithDeadline(ctx, due)
	defer cancel()
	next, err := w.cache.Next(wait, at)
	if err != nil && wait.Err() != nil && !errors.Is(err, storage.ErrCompacted) {
		return nil, nil
	}
	return next, err
}

// present adds what is there, in the order of the keys.
func (w *watcher) present(at *cache.Snapshot) error {
	for change := range changes(nil, at) {
		if _, kind, object := w.tell(change); object != nil {
			if err := w.event(kind, object); err != nil {
				return err
			}
		}
	}
	return nil
}

// step adds the events that lead from one snapshot to the next. What is gone is gone
// as of the revision that made the content.
func (w *watcher) step(from, to *cache.Snapshot) error { return w.differ(from, to, to.Changed()) }

// leap is step where the cache was listed anew and nothing is known of what lay
// between: the objects are of several revisions. What is gone comes first, as of
// the revision before.
func (w *watcher) leap(from, to *cache.Snapshot) error { return w.differ(from, to, from.Revision()) }

// differ adds the events in the order of their revisions, and of their keys. So a
// client that is cut off in the middle has a revision from which it must list,
// or the last one, whose objects it is sent again, and misses nothing.
func (w *watcher) differ(from, to *cache.Snapshot, goneAt int64) error {
	type present struct {
		kind     watch.EventType
		object   *config.Config
		revision int64
	}
	var all []present
	for change := range changes(from, to) {
		gone, kind, object := w.tell(change)
		if gone != nil {
			last := *gone
			last.ResourceVersion = strconv.FormatInt(goneAt, 10)
			all = append(all, present{watch.Deleted, &last, goneAt})
		}
		if object != nil {
			revision, _ := strconv.ParseInt(object.ResourceVersion, 10, 64) // of etcd, or all are 0
			all = append(all, present{kind, object, revision})
		}
	}
	slices.SortStableFunc(all, func(a, b present) int { return cmp.Compare(a.revision, b.revision) })
	for _, p := range all {
		if err := w.event(p.kind, p.object); err != nil {
			return err
		}
	}
	return nil
}

// tell is what the client is told of a change: the object that is gone, nil if
// none is, and the one that is there, nil if there is nothing to tell of it.
func (w *watcher) tell(change pmap.Change[*config.Config]) (gone *config.Config, kind watch.EventType, object *config.Config) {
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

// concerns says whether an object is of the kind and namespace that are
// watched.
func (w *watcher) concerns(object *config.Config) bool {
	c := w.call
	return object != nil && object.Kind == c.schema.Kind && object.Group == c.schema.Group &&
		(c.namespace == "" || object.Namespace == c.namespace)
}

func (w *watcher) event(kind watch.EventType, object *config.Config) error {
	text, err := config.ToJSON(object, w.call.version)
	if err != nil {
		return err
	}
	w.frame(kind, text)
	return nil
}

// bookmark adds an event that says that all up to the revision was sent, where
// the client wants such.
func (w *watcher) bookmark(at *cache.Snapshot, annotations map[string]string) error {
	if !w.options.bookmarks {
		return nil
	}
	text, err := json.Marshal(metav1.PartialObjectMetadata{
		TypeMeta:   w.call.typeMeta(""),
		ObjectMeta: metav1.ObjectMeta{ResourceVersion: at.Version(), Annotations: annotations},
	})
	if err != nil {
		return err
	}
	w.frame(watch.Bookmark, text)
	return nil
}

// broken ends the watch with an event that says why.
func (w *watcher) broken(cause error) error {
	text, err := json.Marshal(statusOf(w.call, cause))
	if err != nil {
		return err
	}
	w.frame(watch.Error, text)
	return errors.Join(cause, w.flush())
}

func (w *watcher) frame(kind watch.EventType, object []byte) {
	fmt.Fprintf(&w.out, `{"type":%q,"object":%s}`+"\n", kind, object)
}

// flush sends what was added, all at once. A client that does not take it in
// time loses the connection, so that nobody makes us keep history for him.
func (w *watcher) flush() error {
	return bounded(w.call.w, func() error {
		if w.out.Len() == 0 {
			return nil
		}
		_, err := w.call.w.Write(w.out.Bytes())
		w.out.Reset()
		return err
	})
}

// watchers are the open watches, for the end of the server.
type watchers struct {
	mu     sync.Mutex // guards the fields below
	next   int
	cancel map[int]context.CancelFunc
	ended  bool
}

// add registers a watch by what ends it, and returns what removes it.
func (w *watchers) add(cancel context.CancelFunc) (remove func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended {
		cancel()
		return func() {}
	}
	if w.cancel == nil {
		w.cancel = map[int]context.CancelFunc{}
	}
	id := w.next
	w.next++
	w.cancel[id] = cancel
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.cancel, id)
	}
}

func (w *watchers) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = true
	for _, cancel := range w.cancel {
		cancel()
	}
}
