package kube

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/go-multierror"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/cache/kube/cluster"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/errlist"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/storage/retry"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/storage/status"
)

// FieldManager is the manager of what StatusWriter writes.
const FieldManager = "portolan"

const (
	// writePause is the least time between two writes of statuses.
	writePause = 50 * time.Millisecond
	// lookPause is how often the writer looks for what is due, and faultPause how long it
	// waits after a failure.
	lookPause  = time.Second
	faultPause = 10 * time.Second
	// writeTimeout bounds one write.
	writeTimeout = 10 * time.Second
)

// StatusWriter writes conditions of the objects of a cluster into their statuses there, and the
// addresses of its Ingresses, by server-side apply. It writes an object only if they differ, and
// leaves those of other managers alone. One server at a time runs one.
type StatusWriter struct {
	Cache *Cache
	// Source is the Meta.Source of the objects of the Cache.
	Source string
	// Snapshot returns the newest configuration with its statuses; nil before the first.
	Snapshot func() *cache.Snapshot

	// Only the goroutine of Run uses these fields.
	seen    *cache.Snapshot
	own     *cache.Snapshot              // of the Cache
	faulty  map[string]cache.Problem     // by Key.String
	due     map[string]bool              // by Path
	written map[string]map[string]string // conditions by Path and type
	refused map[string]error             // by Path: the cluster does not take the conditions
}

// Run writes statuses until ctx ends, and then returns nil.
func (w *StatusWriter) Run(ctx context.Context) error {
	w.seen, w.own, w.faulty, w.due, w.written, w.refused = nil, nil, nil, map[string]bool{}, map[string]map[string]string{}, map[string]error{}
	defer w.Cache.setWriting(nil)
	for {
		pause := lookPause
		w.follow()
		err := w.writeDue(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if w.Cache.setWriting(err); err != nil && len(w.due) > 0 {
			pause = faultPause
		}
		if retry.Sleep(ctx, pause) != nil {
			return nil
		}
	}
}

// follow notes the objects whose conditions may differ from what was looked at before.
func (w *StatusWriter) follow() {
	now := w.Snapshot()
	if now == nil {
		return
	}
	for change := range pmap.Diff(w.seen.Configs(), now.Configs()) {
		w.due[change.Key] = true
	}
	for change := range pmap.Diff(w.seen.Statuses(), now.Statuses()) {
		w.due[change.Key] = true
	}
	own := w.Cache.Snapshot()
	for change := range pmap.Diff(w.own.Configs(), own.Configs()) { // one that is not in effect too
		w.due[change.Key] = true
	}
	w.seen, w.own = now, own
	faulty := map[string]cache.Problem{}
	for _, p := range w.Cache.o.Cluster.Problems() {
		faulty[p.Object] = p
		if was := w.faulty[p.Object]; was.Message != p.Message || was.UID != p.UID || was.Generation != p.Generation {
			w.due[w.pathOf(p.Object)] = true
		}
	}
	for object := range w.faulty {
		if _, still := faulty[object]; !still {
			w.due[w.pathOf(object)] = true
		}
	}
	w.faulty = faulty
}

// pathOf returns the Path of a Key.String of an object in a cluster.
func (w *StatusWriter) pathOf(object string) string {
	parts := strings.SplitN(object, "/", 3)
	for _, kind := range w.Cache.kinds {
		if len(parts) == 3 && strings.EqualFold(kind.Kind, parts[0]) {
			return config.Key{Kind: kind.GroupVersionKind, Namespace: parts[1], Name: parts[2]}.Path()
		}
	}
	return ""
}

// errUnfollowed says that the cluster has not told yet in which version it has a kind. Until then
// the objects of the kind are those that it last had.
var errUnfollowed = errors.New("the kind is not followed yet")

// writeDue writes what is due, in the order of the Paths. An error of one object holds up no other. Where the
// account lacks a right, or a kind is not followed yet, the objects of that kind alone stay due. After any other
// error the rest stays due.
func (w *StatusWriter) writeDue(ctx context.Context) error {
	lacking, faults := map[config.GroupVersionKind]bool{}, []error(nil)
	for _, path := range slices.Sorted(maps.Keys(w.due)) {
		key, _ := config.KeyOfPath(path)
		if lacking[key.Kind] {
			continue
		}
		wrote, err := w.write(ctx, key)
		delete(w.refused, path)
		switch {
		case errors.Is(err, errUnfollowed):
			continue
		case errors.Is(err, cluster.ErrDenied):
			lacking[key.Kind], faults = true, append(faults, err)
		case apierrors.IsConflict(err), apierrors.IsInvalid(err):
			w.refused[path] = err
			delete(w.due, path)
		case err != nil:
			return err
		default:
			delete(w.due, path)
		}
		if wrote && retry.Sleep(ctx, writePause) != nil {
			return nil
		}
	}
	if len(w.refused) > 0 {
		first := slices.Min(slices.Collect(maps.Keys(w.refused)))
		faults = append(faults, fmt.Errorf("%d objects, the first: %w", len(w.refused), w.refused[first]))
	}
	if len(faults) == 0 {
		return nil
	}
	return &multierror.Error{Errors: faults, ErrorFormat: errlist.OneLine}
}

// write writes the conditions of an object, if they differ from those in the cluster.
func (w *StatusWriter) write(ctx context.Context, key config.Key) (wrote bool, err error) {
	path, want := key.Path(), w.wanted(key)
	if want == nil {
		delete(w.written, path)
		return false, nil
	}
	if maps.Equal(w.written[path], want.texts) {
		return false, nil
	}
	resource, ok := w.Cache.resourceOf(key.Kind)
	if !ok {
		return false, errUnfollowed
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	client := w.Cache.o.Cluster.Dynamic().Resource(resource).Namespace(key.Namespace)
	there, err := client.Get(ctx, key.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return false, nil // its deletion will be seen
	case err != nil:
		return false, fmt.Errorf("read %s: %w", key, w.Cache.o.Cluster.Lacking("get", resource.GroupResource().String(), err))
	case string(there.GetUID()) != want.uid:
		return false, nil // the new object will be seen
	}
	if !want.held(there) {
		if err := apply(ctx, client, there, want.status); err != nil {
			return true, fmt.Errorf("write the status of %s: %w", key, w.Cache.o.Cluster.Lacking("patch", resource.GroupResource().String()+"/status", err))
		}
	}
	w.written[path] = want.texts
	return true, nil
}

// wanted is what the writer wants in the status of an object.
type wanted struct {
	// texts is what counts of it, by what it is about.
	texts  map[string]string
	status map[string]any
	// uid is that of the object that it is about.
	uid string
	// held says whether an object in the cluster has it.
	held func(there *unstructured.Unstructured) bool
}

// wanted returns nil if there is nothing to say. The status of an Ingress has no conditions in
// Kubernetes, but the addresses at which it is served.
func (w *StatusWriter) wanted(key config.Key) *wanted {
	if key.Kind.Group == schema.Ingress.Group {
		return w.wantedOfIngress(key)
	}
	about, conditions := w.conditionsOf(key)
	if conditions == nil {
		return nil
	}
	texts := textsOf(conditions)
	out := &wanted{texts: maps.Clone(texts), status: conditionsIn(conditions), uid: about.uid}
	out.texts["uid"], out.texts["observedGeneration"] = about.uid, strconv.FormatInt(about.generation, 10)
	out.status["observedGeneration"] = about.generation
	out.held = func(there *unstructured.Unstructured) bool {
		observed, _, err := unstructured.NestedInt64(there.Object, "status", "observedGeneration")
		return err == nil && observed == about.generation && holds(there, texts)
	}
	return out
}

// version is an object of a cluster in one generation.
type version struct {
	uid        string
	generation int64
}

func versionOf(object *config.Config) version { return version{object.UID, object.Generation} }

// conditionsOf returns conditions, and what in the cluster they are about. It returns no conditions if
// there is nothing to say.
func (w *StatusWriter) conditionsOf(key config.Key) (about version, conditions []status.Condition) {
	if p, ok := w.faulty[key.String()]; ok {
		message := p.Message
		if p.Serving {
			message += " (what it held before is served)"
		}
		return version{p.UID, p.Generation}, notAccepted("Invalid", message)
	}
	object := w.seen.Get(key)
	if object == nil {
		return version{}, nil
	}
	if object.Source == w.Source {
		report := w.seen.Statuses().Value(key.Path())
		if !report.About(object) {
			return version{}, nil
		}
		return versionOf(object), report.Conditions
	}
	own := w.own.Get(key)
	if own == nil {
		return version{}, nil
	}
	return versionOf(own), notAccepted("Shadowed", fmt.Sprintf("it is not in effect: %s has this object too, and comes first", cmp.Or(object.Source, "the store")))
}

func notAccepted(reason, message string) []status.Condition {
	return []status.Condition{{Type: status.Accepted, Status: status.False, Reason: reason, Message: message}}
}

// textsOf returns what counts of conditions, by type.
func textsOf(all []status.Condition) map[string]string {
	out := make(map[string]string, len(all))
	for _, c := range all {
		out[c.Type] = c.Status + " " + c.Reason + " " + c.Message
	}
	return out
}

// holds says whether the conditions in a cluster are as wanted, with no other of those that servers
// write.
func holds(there *unstructured.Unstructured, want map[string]string) bool {
	all, _, err := unstructured.NestedSlice(there.Object, "status", "conditions")
	if err != nil {
		return false
	}
	found := 0
	for _, one := range all {
		c, _ := one.(map[string]any)
		name, _ := c["type"].(string)
		switch text, ok := want[name]; {
		case ok && text == fmt.Sprint(c["status"], " ", c["reason"], " ", c["message"]):
			found++
		case ok, slices.Contains(status.Types, name):
			return false
		}
	}
	return found == len(want)
}

// conditionsIn returns conditions as a status has them.
func conditionsIn(conditions []status.Condition) map[string]any {
	var list []any
	for _, c := range conditions {
		one := map[string]any{"type": c.Type, "status": c.Status, "reason": c.Reason, "message": c.Message}
		if !c.Since.IsZero() {
			one["lastTransitionTime"] = c.Since.UTC().Format(time.RFC3339)
		}
		list = append(list, one)
	}
	return map[string]any{"conditions": list}
}

// apply applies a status to an object in a cluster.
func apply(ctx context.Context, client dynamic.ResourceInterface, there *unstructured.Unstructured, status map[string]any) error {
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": there.GetAPIVersion(), "kind": there.GetKind(),
		"metadata": map[string]any{"name": there.GetName(), "namespace": there.GetNamespace(), "uid": string(there.GetUID())},
		"status":   status,
	}}
	_, err := client.ApplyStatus(ctx, there.GetName(), object, metav1.ApplyOptions{FieldManager: FieldManager})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
