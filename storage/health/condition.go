package health

import (
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"
	metav1alpha1 "istio.io/api/meta/v1alpha1"
)

// ConditionType is the type of the condition that has the health in the status of a WorkloadEntry.
const ConditionType = "Healthy"

// The statuses of the condition.
const (
	healthy   = "True"
	unhealthy = "False"
)

// Condition returns what is reported as a condition.
func (r *Report) Condition() *metav1alpha1.IstioCondition {
	out := &metav1alpha1.IstioCondition{
		Type: ConditionType, Status: unhealthy, Reason: r.Reason, Message: r.Message,
		LastTransitionTime: timestamp(r.Since), LastProbeTime: timestamp(r.Probed),
	}
	if r.Healthy {
		out.Status = healthy
	}
	return out
}

// In returns the first condition of ConditionType, nil for none.
func In(all []*metav1alpha1.IstioCondition) *metav1alpha1.IstioCondition {
	for _, c := range all {
		if c.GetType() == ConditionType {
			return c
		}
	}
	return nil
}

// FromConditions returns the report of the condition In some, with what a condition has of it. It is
// nil without one, and if that says neither True nor False.
func FromConditions(all []*metav1alpha1.IstioCondition) *Report {
	c := In(all)
	if c.GetStatus() != healthy && c.GetStatus() != unhealthy {
		return nil
	}
	return &Report{
		Healthy: c.GetStatus() == healthy, Reason: c.GetReason(), Message: c.GetMessage(),
		Since: timeOf(c.GetLastTransitionTime()), Probed: timeOf(c.GetLastProbeTime()),
	}
}

func timestamp(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

// timeOf returns the zero time for none, and for one that is out of range.
func timeOf(t *timestamppb.Timestamp) time.Time {
	if !t.IsValid() {
		return time.Time{}
	}
	return t.AsTime()
}
