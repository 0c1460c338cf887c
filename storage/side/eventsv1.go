package side

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// EventsVersion is the API version in which an Event has the names of EventV1.
const EventsVersion = "events.k8s.io/v1"

// EventV1 is an Event with the names of events.k8s.io/v1.
type EventV1 struct {
	EventTime                metav1.MicroTime        `json:"eventTime,omitzero"`
	Series                   *corev1.EventSeries     `json:"series,omitempty"`
	ReportingController      string                  `json:"reportingController,omitempty"`
	ReportingInstance        string                  `json:"reportingInstance,omitempty"`
	Action                   string                  `json:"action,omitempty"`
	Reason                   string                  `json:"reason,omitempty"`
	Regarding                corev1.ObjectReference  `json:"regarding,omitzero"`
	Related                  *corev1.ObjectReference `json:"related,omitempty"`
	Note                     string                  `json:"note,omitempty"`
	Type                     string                  `json:"type,omitempty"`
	DeprecatedSource         corev1.EventSource      `json:"deprecatedSource,omitzero"`
	DeprecatedFirstTimestamp metav1.Time             `json:"deprecatedFirstTimestamp,omitzero"`
	DeprecatedLastTimestamp  metav1.Time             `json:"deprecatedLastTimestamp,omitzero"`
	DeprecatedCount          int32                   `json:"deprecatedCount,omitempty"`
}

// TopLevel implements config.TopLevel.
func (*EventV1) TopLevel() {}

// In implements config.Spelled.
func (e *Event) In(version string) any {
	if version != EventsVersion {
		return e
	}
	return &EventV1{
		EventTime: e.EventTime, Series: e.Series, ReportingController: e.ReportingComponent, ReportingInstance: e.ReportingInstance,
		Action: e.Action, Reason: e.Reason, Regarding: e.InvolvedObject, Related: e.Related, Note: e.Message, Type: e.Type,
		DeprecatedSource: e.Source, DeprecatedFirstTimestamp: e.FirstTimestamp, DeprecatedLastTimestamp: e.LastTimestamp, DeprecatedCount: e.Count,
	}
}

// Event returns the event with the names of core/v1.
func (e *EventV1) Event() *Event {
	return &Event{
		EventTime: e.EventTime, Series: e.Series, ReportingComponent: e.ReportingController, ReportingInstance: e.ReportingInstance,
		Action: e.Action, Reason: e.Reason, InvolvedObject: e.Regarding, Related: e.Related, Message: e.Note, Type: e.Type,
		Source: e.DeprecatedSource, FirstTimestamp: e.DeprecatedFirstTimestamp, LastTimestamp: e.DeprecatedLastTimestamp, Count: e.DeprecatedCount,
	}
}
