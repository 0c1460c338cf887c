package side

import (
	"cmp"
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

// SelectableFields returns the fields by which lists and watches may select events, with the names
// of both API groups.
func (e *Event) SelectableFields() map[string]string {
	out := map[string]string{
		"reason": e.Reason, "type": e.Type, "source": cmp.Or(e.Source.Component, e.ReportingComponent),
		"reportingComponent": e.ReportingComponent, "reportingController": e.ReportingComponent,
	}
	for name, of := range map[string]string{
		"apiVersion": e.InvolvedObject.APIVersion, "kind": e.InvolvedObject.Kind, "namespace": e.InvolvedObject.Namespace, "name": e.InvolvedObject.Name,
		"uid": string(e.InvolvedObject.UID), "resourceVersion": e.InvolvedObject.ResourceVersion, "fieldPath": e.InvolvedObject.FieldPath,
	} {
		out["involvedObject."+name], out["regarding."+name] = of, of
	}
	return out
}
