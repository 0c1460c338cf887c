package kube

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"
	metav1alpha1 "istio.io/api/meta/v1alpha1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/health"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// WithHealth returns a WorkloadEntry with its health as the only condition of its status, as the cache
// takes it from clusters and from Options.Recall. Without a report on this object there is no status.
func WithHealth(object *config.Config, r *health.Report) *config.Config {
	if !r.Of(object.UID) {
		return object
	}
	out := *object
	out.Status = &metav1alpha1.IstioStatus{Conditions: []*metav1alpha1.IstioCondition{r.Condition()}}
	return &out
}

// reportIn returns the health in the status of an object of the cluster, nil for none. What cannot be read
// is no reason to refuse an entry: it is a warning if it is the status of a condition Healthy (Report.Odd), and
// none otherwise.
func reportIn(from *unstructured.Unstructured) *health.Report {
	all, _, err := unstructured.NestedSlice(from.Object, "status", "conditions")
	if err != nil {
		return nil
	}
	conditions := make([]*metav1alpha1.IstioCondition, len(all))
	for i, one := range all {
		c, _ := one.(map[string]any)
		text := func(field string) string {
			text, _ := c[field].(string)
			return text
		}
		conditions[i] = &metav1alpha1.IstioCondition{
			Type: text("type"), Status: statusOf(c["status"]), Reason: text("reason"), Message: text("message"),
			LastTransitionTime: timestampOf(text("lastTransitionTime")), LastProbeTime: timestampOf(text("lastProbeTime")),
		}
	}
	return health.FromConditions(conditions)
}

// statusOf returns the status of a condition as text: "none" for a missing one.
func statusOf(value any) string {
	switch text, ok := value.(string); {
	case ok && text != "":
		return text
	case ok || value == nil:
		return "none"
	}
	return fmt.Sprint(value)
}

func timestampOf(text string) *timestamppb.Timestamp {
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return nil
	}
	return timestamppb.New(at)
}

// split returns an object as snapshots have it, without a status, and the health in its status; nil for
// none.
func split(object *config.Config) (*config.Config, *health.Report) {
	if object.Status == nil {
		return object, nil
	}
	var report *health.Report
	if status, ok := object.Status.(*metav1alpha1.IstioStatus); ok && isWorkload(object.GroupVersionKind) {
		report = health.FromConditions(status.GetConditions())
	}
	if report != nil {
		report.Namespace, report.Name, report.UID, report.Revision = object.Namespace, object.Name, object.UID, health.OfSource
	}
	out := *object
	out.Status = nil
	return &out, report
}

func isWorkload(kind config.GroupVersionKind) bool {
	return kind.Group == schema.WorkloadEntry.Group && kind.Kind == schema.WorkloadEntry.Kind
}

// setHealth keeps the health of a workload, and what is odd about it; nil is for none. The caller holds mu.
func (c *Cache) setHealth(path string, report *health.Report) {
	key, ok := config.KeyOfPath(path)
	if !ok || !isWorkload(key.Kind) {
		return
	}
	c.noteOdd(path, key, report)
	at := health.Path(key.Namespace, key.Name)
	switch was := c.health.Value(at); {
	case report == nil:
		c.health = c.health.Delete(at)
	case was == nil || *was != *report:
		c.health = c.health.Set(at, report)
	}
}

// noteOdd keeps a warning of a workload whose health cannot be read, and logs a new one. The caller holds mu.
func (c *Cache) noteOdd(path string, key config.Key, report *health.Report) {
	if report == nil || report.Odd == "" {
		delete(c.odd, path)
		return
	}
	message := fmt.Sprintf("the condition %s of its status is %q, so its health is not known: %s", health.ConditionType, report.Odd, health.OddRemedy)
	if was, again := c.odd[path]; again && was.Message == message {
		return
	}
	c.odd[path] = cache.Problem{Object: key.String(), Message: message, Since: time.Now(), Warning: true}
	c.o.Log.Warn("the health of a workload in a cluster cannot be read", "cluster", c.o.Cluster.Name(), "problem", c.odd[path].String())
}

// oddHealth returns the warnings of workloads that count and whose health cannot be read, by name. The caller
// holds mu.
func (c *Cache) oddHealth() (out []cache.Problem) {
	for _, path := range slices.Sorted(maps.Keys(c.odd)) {
		if c.configs.Value(path) != nil {
			out = append(out, c.odd[path])
		}
	}
	return out
}
