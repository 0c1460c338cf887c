package cluster

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// Following says what to follow. Resource, Kind, Convert and Handle are required.
type Following[T any] struct {
	Resource schema.GroupVersionResource
	// Kind is the kind of the objects, for messages.
	Kind string
	// Namespace limits it to the objects of a namespace; empty is all.
	Namespace string
	// Labels and Fields are selectors as kubectl takes them; empty is all objects.
	Labels, Fields string
	// Convert makes the value that is kept of an object. It owns the object, whose managed
	// fields are gone. If it fails, the last good value stays, and its error is a problem
	// of the object. It may run at the same time as Handle.
	Convert func(Object) (T, error)
	// Handle gets the changes, one batch at a time and in order. What it does delays only
	// this resource.
	Handle func(Batch[T])
	// Has says whether there is a good value of an object that this Follow has not delivered, such
	// as one that was recalled. It must not block. nil is for none.
	Has func(types.NamespacedName) bool
	// State gets why the resource is not followed, and nil once it is: an error that is
	// ErrDenied, ErrAbsent or another. It must not block. nil is for those who do not ask.
	State func(error)
}

// Batch is the changes of one moment.
type Batch[T any] struct {
	// Listed says that the changes are the difference between what was delivered and a
	// new list. Each Follow begins with such a batch, empty if there are no objects. All
	// other batches have one change.
	Listed bool
	// Changes are in the order of their names.
	Changes []Change[T]
	// Refused are the names of the objects in the list that Convert refused, in order.
	Refused []types.NamespacedName
}

// Change is a change of one object. On an add HadOld is false, on a delete HasNew is. An
// object that was deleted and created again is one change.
type Change[T any] struct {
	Name           types.NamespacedName
	Old, New       T
	HadOld, HasNew bool
}

// Follow delivers the objects of a resource until ctx ends, and then returns nil. No
// handler runs any more once it has returned. It fails only if f is wrong. While the
// cluster is away it tries again, and c.Degraded says why.
func Follow[T any](ctx context.Context, c *Cluster, f Following[T]) error {
	if _, err := labels.Parse(f.Labels); err != nil {
		return fmt.Errorf("follow %s: labels: %w", f.Resource.Resource, err)
	}
	if _, err := fields.ParseSelector(f.Fields); err != nil {
		return fmt.Errorf("follow %s: fields: %w", f.Resource.Resource, err)
	}
	has := f.Has
	if has == nil {
		has = func(types.NamespacedName) bool { return false }
	}
	s := c.begin(&target{f.Resource, f.Kind, f.Namespace, f.Labels, f.Fields}, f.State)
	defer c.end(s)
	source := &lister[T]{link: c.link, state: s, convert: f.Convert, waits: newWaits(c.link)}
	defer source.end()

	// The log of client-go repeats what Degraded says, and is for developers.
	logger := logr.FromSlogHandler(debugOnly{c.link.o.Log.Handler()})
	ctx = klog.NewContext(ctx, logger)
	o := &c.link.o
	reflector := cache.NewReflectorWithOptions(source, nil, &store[T]{state: s, handle: f.Handle, has: has, held: map[types.NamespacedName]held[T]{}}, cache.ReflectorOptions{
		Logger: &logger, Name: c.Name() + "/" + f.Resource.Resource, TypeDescription: f.Kind,
		Clock:   endingClock{whenDone: func(f func()) func() bool { return context.AfterFunc(ctx, f) }},
		Backoff: &wait.Backoff{Duration: o.RetryMin, Jitter: 1}, // waits lengthens it
	})
	reflector.RunWithContext(ctx)
	return nil
}

// endingClock is the clock of a Reflector, which in places waits for After and not for
// its context: once that has ended, no wait lasts.
type endingClock struct {
	clock.RealClock
	// whenDone is context.AfterFunc of the context.
	whenDone func(func()) (stop func() bool)
}

// After implements clock.Clock.
func (c endingClock) After(d time.Duration) <-chan time.Time {
	out := make(chan time.Time, 1)
	fire := sync.OnceFunc(func() { out <- time.Now() })
	stop := c.whenDone(fire)
	time.AfterFunc(d, func() {
		stop()
		fire()
	})
	return out
}

// debugOnly passes records on as debug messages.
type debugOnly struct{ slog.Handler }

// Enabled implements slog.Handler.
func (h debugOnly) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelInfo && h.Handler.Enabled(ctx, slog.LevelDebug)
}

// Handle implements slog.Handler. logr passes errors on without asking Enabled.
func (h debugOnly) Handle(ctx context.Context, r slog.Record) error {
	if !h.Handler.Enabled(ctx, slog.LevelDebug) {
		return nil
	}
	r.Level = slog.LevelDebug
	return h.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h debugOnly) WithAttrs(attrs []slog.Attr) slog.Handler {
	return debugOnly{h.Handler.WithAttrs(attrs)}
}

// WithGroup implements slog.Handler.
func (h debugOnly) WithGroup(name string) slog.Handler { return debugOnly{h.Handler.WithGroup(name)} }
