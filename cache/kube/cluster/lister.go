package cluster

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

// Object is an object of a cluster: one of k8s.io/api, or *unstructured.Unstructured.
type Object interface {
	runtime.Object
	metav1.Object
}

// item is what is kept of an object. As a runtime.Object it passes through a Reflector,
// so that this never holds more of an object than the value.
type item[T any] struct {
	metav1.ObjectMeta // its name, version, generation, uid; of bookmarks the annotations
	value             T
	// has says that there is a value; otherwise fault says why there is none.
	has   bool
	fault error
}

// GetObjectKind implements runtime.Object.
func (i *item[T]) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject implements runtime.Object. Items are never modified.
func (i *item[T]) DeepCopyObject() runtime.Object { return i }

func (i *item[T]) name() types.NamespacedName {
	return types.NamespacedName{Namespace: i.Namespace, Name: i.Name}
}

// itemList is a list of items.
type itemList[T any] struct {
	metav1.ListMeta
	Items []*item[T]
}

// GetObjectKind implements runtime.Object.
func (l *itemList[T]) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject implements runtime.Object. Lists are never modified.
func (l *itemList[T]) DeepCopyObject() runtime.Object { return l }

// lister is the source of a Reflector.
type lister[T any] struct {
	link    *link
	state   *state
	convert func(Object) (T, error)
	waits   *waits
	// A Reflector does not wait for its list once it has ended, and may even begin one.
	mu    sync.Mutex
	ended bool
	lists sync.WaitGroup // added to while mu is held and ended is not set
}

// begin notes that a list begins, and says whether it may.
func (l *lister[T]) begin() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.ended {
		l.lists.Add(1)
	}
	return !l.ended
}

// end waits for the last list. None begins afterwards.
func (l *lister[T]) end() {
	l.mu.Lock()
	l.ended = true
	l.mu.Unlock()
	l.lists.Wait()
}

// List implements cache.ListerWatcher.
func (l *lister[T]) List(metav1.ListOptions) (runtime.Object, error) {
	panic("cluster: a Reflector lists with a context")
}

// Watch implements cache.ListerWatcher.
func (l *lister[T]) Watch(metav1.ListOptions) (watch.Interface, error) {
	panic("cluster: a Reflector watches with a context")
}

// ListWithContext implements cache.ListerWatcherWithContext.
func (l *lister[T]) ListWithContext(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	if !l.begin() {
		return nil, context.Canceled
	}
	defer l.lists.Done()
	if err := l.waits.wait(ctx); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, l.link.o.Timeout, l.link.late())
	defer cancel()
	out := &itemList[T]{}
	from, err := l.state.target.list(ctx, l.link.current(), o, func(object Object) { out.Items = append(out.Items, l.item(object)) })
	if err != nil {
		l.lost(ctx, "list", err)
		return nil, err
	}
	l.waits.listed()
	out.ListMeta = metav1.ListMeta{ResourceVersion: from.GetResourceVersion(), Continue: from.GetContinue(), RemainingItemCount: from.GetRemainingItemCount()}
	l.state.answered("list")
	return out, nil
}

// WatchWithContext implements cache.ListerWatcherWithContext.
func (l *lister[T]) WatchWithContext(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	if err := l.waits.wait(ctx); err != nil {
		return nil, err
	}
	if l.link.o.WatchFor > 0 {
		seconds := int64(l.link.o.WatchFor / time.Second)
		o.TimeoutSeconds = &seconds
	}
	ctx, cancel := context.WithCancelCause(ctx)
	late := time.AfterFunc(l.link.o.Timeout, func() { cancel(l.link.late()) })
	in, err := l.state.target.watch(ctx, l.link.current(), o)
	late.Stop()
	streamed := o.SendInitialEvents != nil && *o.SendInitialEvents
	if err != nil {
		if !streamed || !apierrors.IsInvalid(err) && !apierrors.IsBadRequest(err) { // otherwise a server without such watches: a list follows
			l.lost(ctx, "watch", err)
		}
		cancel(nil)
		return nil, err
	}
	if !streamed {
		l.state.answered("watch")
	}
	w := &itemWatch{in: in, out: make(chan watch.Event), cancel: func() { cancel(nil) }, ended: make(chan struct{}), useless: func() { l.lost(ctx, "watch", errShort) }}
	if streamed {
		w.limit = l.link.o.Timeout
	}
	go w.run(ctx.Done(), func(event watch.Event, whole bool) runtime.Object {
		switch {
		case event.Type == watch.Error:
			l.broken(ctx, apierrors.FromObject(event.Object))
		case whole:
			l.waits.listed()
			l.state.answered("watch")
		}
		if object, ok := event.Object.(Object); ok {
			return l.item(object)
		}
		return event.Object // a Status
	})
	return w, nil
}

// broken notes that a watch has ended with an error: the next one comes after a list.
func (l *lister[T]) broken(ctx context.Context, err error) {
	if !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
		l.lost(ctx, "watch", err)
		return
	}
	l.waits.expired()
	l.state.lost(ctx, "watch", fmt.Errorf("the cluster no longer tells all changes of %s since the last one: a list follows", l.state.target.resource.GroupResource()))
}

// lost notes why a request failed, and has the next one wait.
func (l *lister[T]) lost(ctx context.Context, verb string, err error) {
	l.waits.failed()
	l.state.lost(ctx, verb, err)
}

// late is the reason of a request that was not answered in time.
func (l *link) late() error { return fmt.Errorf("no answer within %s", l.o.Timeout) }

// item converts an object.
func (l *lister[T]) item(o Object) *item[T] {
	out := &item[T]{ObjectMeta: metav1.ObjectMeta{
		Namespace: o.GetNamespace(), Name: o.GetName(), UID: o.GetUID(), ResourceVersion: o.GetResourceVersion(), Generation: o.GetGeneration(),
	}}
	if end := o.GetAnnotations()[metav1.InitialEventsAnnotationKey]; end != "" && o.GetName() == "" {
		out.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: end}
	}
	if o.GetName() == "" {
		return out // a bookmark
	}
	o.SetManagedFields(nil)
	if out.value, out.fault = l.convert(o); out.fault == nil {
		out.has = true
	}
	return out
}

// itemWatch is a watch whose events have items.
type itemWatch struct {
	in     watch.Interface
	out    chan watch.Event
	cancel func()
	ended  chan struct{}
	// limit bounds the wait for the next event of a first list; 0 is no bound.
	limit time.Duration
	// useless is called if the watch ends at once, without an event.
	useless func()
}

var errShort = errors.New("the cluster ends watches at once")

// short is how long a watch without an event lasts at least, unless it is of no use. As in client-go.
const short = time.Second

// ResultChan implements watch.Interface.
func (w *itemWatch) ResultChan() <-chan watch.Event { return w.out }

// Stop implements watch.Interface. It waits for the goroutine of the watch.
func (w *itemWatch) Stop() {
	w.cancel()
	<-w.ended
}

// run passes the events on, with what item makes of their objects, until the watch ends or done is closed.
// whole says that a first list, which the watch sends, is whole with this event.
func (w *itemWatch) run(done <-chan struct{}, item func(event watch.Event, whole bool) runtime.Object) {
	defer close(w.ended)
	defer close(w.out)
	defer w.in.Stop()
	var idle <-chan time.Time
	timer, useful := time.NewTimer(w.limit), time.Now().Add(short)
	defer timer.Stop()
	if w.limit > 0 {
		idle = timer.C
	}
	for {
		var event watch.Event
		var ok bool
		select {
		case <-done:
			return
		case <-idle:
			return
		case event, ok = <-w.in.ResultChan():
		}
		if !ok {
			if time.Now().Before(useful) {
				w.useless()
			}
			return
		}
		whole := idle != nil && event.Type == watch.Bookmark
		event.Object = item(event, whole)
		timer.Reset(w.limit)
		if useful = (time.Time{}); whole {
			idle, useful = nil, time.Now().Add(short) // the watch proper begins
		}
		select {
		case <-done:
			return
		case w.out <- event:
		}
	}
}
