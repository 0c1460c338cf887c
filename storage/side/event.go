package side

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Event is the content of an Event: what happened to an object. Its fields are those of core/v1.
type Event struct {
	InvolvedObject corev1.ObjectReference  `json:"involvedObject,omitzero"`
	Reason         string                  `json:"reason,omitempty"`
	Message        string                  `json:"message,omitempty"`
	Source         corev1.EventSource      `json:"source,omitzero"`
	FirstTimestamp metav1.Time             `json:"firstTimestamp,omitzero"`
	LastTimestamp  metav1.Time             `json:"lastTimestamp,omitzero"`
	Count          int32                   `json:"count,omitempty"`
	Type           string                  `json:"type,omitempty"`
	EventTime      metav1.MicroTime        `json:"eventTime,omitzero"`
	Series         *corev1.EventSeries     `json:"series,omitempty"`
	Action         string                  `json:"action,omitempty"`
	Related        *corev1.ObjectReference `json:"related,omitempty"`
	// ReportingComponent and ReportingInstance say who tells of it.
	ReportingComponent string `json:"reportingComponent"`
	ReportingInstance  string `json:"reportingInstance"`
}

// TopLevel implements config.TopLevel.
func (*Event) TopLevel() {}

// Last returns when the event last happened, the zero time if it does not say.
func (e *Event) Last() time.Time {
	last := e.EventTime.Time
	for _, at := range []time.Time{e.FirstTimestamp.Time, e.LastTimestamp.Time} {
		if at.After(last) {
			last = at
		}
	}
	if e.Series != nil && e.Series.LastObservedTime.After(last) {
		last = e.Series.LastObservedTime.Time
	}
	return last
}
