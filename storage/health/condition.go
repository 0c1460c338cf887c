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
	unknown   = "Unknown"
)

// maxOdd is how many characters Report.Odd has of what a condition says.
const maxOdd = 40

// Condition returns what is reported as a condition.
func (r *Report) Condition() *metav1alpha1.IstioCondition {
	out := &metav1alpha1.IstioCondition{
		Type: ConditionType, Status: unhealthy, Reason: r.Reason, Message: r.Message,
		LastTransitionTime: timestamp(r.Since), LastProbeTime: timestamp(r.Probed),
	}
	switch {
	case r.Odd != "":
		out.Status = r.Odd
	case r.Healthy:
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
// nil without one, and if that says Unknown. One that says neither that nor True or False is Odd.
func FromConditions(all []*metav1alpha1.IstioCondition) *Report {
	c := In(all)
	switch c.GetStatus() {
	case healthy, unhealthy:
	case unknown, "":
		return nil
	default:
		odd := []rune(c.GetStatus())
		return &Report{Unknown: true, Odd: string(odd[:min(len(odd), maxOdd)])}
	}
	return &Report{
		Healthy: c.GetStatus() == healthy, Reason: c.GetReason(), Message: c.GetMessage(),
		Since: timeOf(c.GetLastTransitionTime()), Probed: timeOf(c.GetLastProbeTime()),
	}
}

// OddRemedy says what to do about a report that is Odd.
const OddRemedy = "set its status to True, False or Unknown, as text"

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
