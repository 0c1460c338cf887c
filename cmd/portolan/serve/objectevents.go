package serve

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"iter"
	"log/slog"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/cache/statuses"
	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/etcd/election"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/storage/schema"
	sidespec "github.com/portolan-mesh/portolan/storage/side"
	"github.com/portolan-mesh/portolan/storage/status"
)

const (
	// eventTick is how often an eventMaker looks for changed conditions, and eventsAtOnce how many
	// of them it tells of each time: a change of thousands of objects is no thousand events.
	eventTick    = time.Second
	eventsAtOnce = 50
	// eventSource is who tells of the events of the mesh.
	eventSource = "portolan"
)

// An eventMaker makes an event where a condition of an object becomes bad, where it is bad in
// another way, and where proxies have taken an object. What happened while no server led is not
// told: the conditions say how it ended.
type eventMaker struct {
	side     *side
	statuses *statuses.Cache
	logger   *slog.Logger
}

// run implements job.
func (m *eventMaker) run(ctx context.Context, leader *election.Leader) error {
	store := m.side.fenced(leader)
	if _, err := m.side.cache.Await(ctx, 0); err != nil {
		return nil // ctx has ended
	}
	ticker := time.NewTicker(eventTick)
	defer ticker.Stop()
	for seen := m.statuses.Snapshot(); ; {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		now := m.statuses.Snapshot()
		if now == nil || seen == nil || now.Epoch() != seen.Epoch() {
			seen = now
			continue
		}
		ops := eventOps(happened(seen, now), m.side.cache.Snapshot(), time.Now())
		seen = now
		if len(ops) == 0 {
			continue
		}
		_, _, err := store.Apply(ctx, ops)
		switch {
		case ctx.Err() != nil || errors.Is(err, election.ErrNotLeader):
			return nil
		case err != nil:
			m.logger.Warn("events of objects were not written", "events", len(ops), "err", err)
		}
	}
}

// happening is what an event tells.
type happening struct {
	object    *config.Config
	condition status.Condition
	warning   bool
}

// happened returns what has become of objects between two snapshots, warnings first.
func happened(from, to *cache.Snapshot) []happening {
	var out []happening
	for change := range pmap.Diff(from.Statuses(), to.Statuses()) {
		if !change.HasNew {
			continue
		}
		object := to.Configs().Value(change.Key)
		if object == nil || !change.New.Of(object.UID) {
			continue
		}
		var before []status.Condition
		if change.Old.Of(object.UID) {
			before = change.Old.Conditions
		}
		for c := range news(before, change.New.Conditions) {
			out = append(out, happening{object, c, isBad(c)})
		}
	}
	slices.SortStableFunc(out, func(a, b happening) int {
		return cmp.Or(-cmp.Compare(oneIf(a.warning), oneIf(b.warning)), cmp.Compare(a.object.Key().Path(), b.object.Key().Path()))
	})
	return out[:min(len(out), eventsAtOnce)]
}

func oneIf(is bool) int {
	if is {
		return 1
	}
	return 0
}

// isBad says whether a condition tells that something is wrong.
func isBad(c status.Condition) bool {
	switch c.Type {
	case status.Accepted, status.ResolvedRefs:
		return c.Status == status.False
	case status.Rejected, status.Conflicted, status.PartlyServed:
		return c.Status == status.True
	}
	return false
}

// news returns the conditions of which an event tells: what is bad in a way in which it was not
// before, and that proxies have the object, if they did not before.
func news(before, now []status.Condition) iter.Seq[status.Condition] {
	return func(yield func(status.Condition) bool) {
		for _, c := range now {
			at := slices.IndexFunc(before, func(b status.Condition) bool { return b.Type == c.Type })
			same := at >= 0 && before[at].Status == c.Status && before[at].Reason == c.Reason
			taken := c.Type == status.Programmed && c.Status == status.True
			if !same && (isBad(c) || taken) && !yield(c) {
				return
			}
		}
	}
}

// eventOps returns the writes of events: an event that is there already is told once more.
func eventOps(of []happening, present *cache.Snapshot, now time.Time) []storage.Op {
	var out []storage.Op
	for _, h := range of {
		event := eventOf(h, now)
		if old := present.Get(event.Key()); old != nil {
			if was, ok := old.Spec.(*sidespec.Event); ok {
				spec := event.Spec.(*sidespec.Event)
				spec.FirstTimestamp, spec.Count = was.FirstTimestamp, was.Count+1
			}
		}
		out = append(out, storage.Op{Verb: storage.Put, Config: event})
	}
	return out
}

// maxEventMessage bounds the message of an event, as the schema does.
const maxEventMessage = 1000

// eventOf returns the event of a happening, whose name says what it tells.
func eventOf(h happening, now time.Time) *config.Config {
	o, c := h.object, h.condition
	kind, message := corev1.EventTypeNormal, c.Message
	if h.warning {
		kind = corev1.EventTypeWarning
	}
	if len(message) > maxEventMessage {
		message = strings.ToValidUTF8(message[:maxEventMessage], "") + " ..."
	}
	sum := fnv.New64a()
	_, _ = fmt.Fprint(sum, o.GroupVersionKind, o.UID, c.Type, c.Reason)
	at := metav1.NewTime(now.UTC().Truncate(time.Second))
	return &config.Config{
		Meta: config.Meta{GroupVersionKind: schema.Event, Namespace: o.Namespace, Name: fmt.Sprintf("%s.%016x", strings.TrimRight(o.Name[:min(len(o.Name), 200)], "-."), sum.Sum64())},
		Spec: &sidespec.Event{
			InvolvedObject: corev1.ObjectReference{
				APIVersion: o.APIVersion(), Kind: o.Kind, Namespace: o.Namespace, Name: o.Name, UID: types.UID(o.UID), ResourceVersion: o.ResourceVersion,
			},
			Reason: c.Reason, Message: message, Type: kind, FirstTimestamp: at, LastTimestamp: at, Count: 1,
			Source: corev1.EventSource{Component: eventSource}, ReportingComponent: eventSource,
		},
	}
}
