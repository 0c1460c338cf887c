package kube

import (
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"
	metav1alpha1 "istio.io/api/meta/v1alpha1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

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

// reportIn returns the health in the status of an object of the cluster, nil for none. A condition that
// cannot be read is none: the health of a workload is no reason to refuse its entry.
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
			Type: text("type"), Status: text("status"), Reason: text("reason"), Message: text("message"),
			LastTransitionTime: timestampOf(text("lastTransitionTime")), LastProbeTime: timestampOf(text("lastProbeTime")),
		}
	}
	return health.FromConditions(conditions)
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

// setHealth keeps the health of a workload; nil is for none. The caller holds mu.
func (c *Cache) setHealth(path string, report *health.Report) {
	key, ok := config.KeyOfPath(path)
	if !ok || !isWorkload(key.Kind) {
		return
	}
	at := health.Path(key.Namespace, key.Name)
	switch was := c.health.Value(at); {
	case report == nil:
		c.health = c.health.Delete(at)
	case was == nil || *was != *report:
		c.health = c.health.Set(at, report)
	}
}
