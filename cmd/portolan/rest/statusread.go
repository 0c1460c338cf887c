package rest

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"
	metav1alpha1 "istio.io/api/meta/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/health"
	"github.com/portolan-mesh/portolan/storage/refusal"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/storage/schema/ingressstatus"
	"github.com/portolan-mesh/portolan/storage/status"
)

// maxStatusText bounds the type, the reason and the message of a condition.
const maxStatusText = 32 << 10

// sentStatus is what a request says of a status, without what only servers set.
type sentStatus struct {
	uid, resourceVersion string
	// health is the condition Healthy of a WorkloadEntry, Unknown if the request has none.
	health *health.Report
	// reserved are the conditions of servers that the request has.
	reserved []*metav1alpha1.IstioCondition
	// conditions have no manager, and no Since if the request names none.
	conditions []status.ClientCondition
	// addresses are those of an Ingress, which servers set.
	addresses []string
}

func readStatus(c *call, body []byte) (*sentStatus, error) {
	var object struct {
		metav1.PartialObjectMetadata `json:",inline"`
		Status                       json.RawMessage `json:"status"`
	}
	if err := json.Unmarshal(body, &object); err != nil {
		return nil, refusal.BadRequest(fmt.Sprintf("the object in the request body cannot be read: %v", err))
	}
	var found faults
	fitStatusToPath(c, &object.PartialObjectMetadata, &found)
	sent := &sentStatus{uid: string(object.UID), resourceVersion: object.ResourceVersion, health: &health.Report{Unknown: true}}
	sent.read(c.schema.GroupVersionKind, object.Status, &found)
	details := metav1.StatusDetails{Name: c.name, Group: c.schema.Group, Kind: c.schema.Kind}
	return sent, found.error("the status of "+c.key().String()+" cannot be set", details)
}

// fitStatusToPath checks that the path names this object.
func fitStatusToPath(c *call, object *metav1.PartialObjectMetadata, found *faults) {
	kind := object.GroupVersionKind()
	if kind.Kind != c.schema.Kind || kind.Group != c.schema.Group {
		found.cannotRead("kind", fmt.Sprintf("is %q of %q, and the path takes %s of %s", kind.Kind, object.APIVersion, c.schema.Kind, groupName(c.schema.Group)))
	}
	if object.Namespace != "" && object.Namespace != c.namespace {
		found.cannotRead("metadata.namespace", fmt.Sprintf("is %q, and the path says %q: make them equal", object.Namespace, c.namespace))
	}
	if object.Name != "" && object.Name != c.name {
		found.cannotRead("metadata.name", fmt.Sprintf("is %q, and the path says %q: make them equal", object.Name, c.name))
	}
}

// read reads a status. An absent one is empty.
func (s *sentStatus) read(kind config.GroupVersionKind, text json.RawMessage, found *faults) {
	into := conditionsOf(schema.NewStatus(kind))
	if len(text) > 0 && string(text) != "null" {
		if err := config.DecodeMessage("status", text, into); err != nil {
			for _, fault := range config.Faults(err) {
				field, message, _ := strings.Cut(fault.Error(), ": ")
				found.cannotRead(field, message)
			}
			return
		}
	}
	if of, ok := into.(*ingressstatus.IngressStatus); ok {
		s.addresses = of.Addresses()
	}
	if len(into.GetValidationMessages()) > 0 {
		found.mayNotBe("status.validationMessages", "is not kept: leave it out")
	}
	if n := len(into.GetConditions()); n > maxConditions+len(status.Types) {
		found.mayNotBe("status.conditions", fmt.Sprintf("are %d, and may be %d", n, maxConditions))
		return
	}
	isWorkload := isKind(kind, schema.WorkloadEntry)
	seen := map[string]bool{}
	for i, one := range into.GetConditions() {
		field := fmt.Sprintf("status.conditions[%d]", i)
		switch {
		case status.Reserved(one.GetType()): // mostly sent back as read
			s.reserved = append(s.reserved, one)
		case seen[one.GetType()]:
			found.mayNotBe(field+".type", "is "+one.GetType()+" once more: say it once")
		case isWorkload && one.GetType() == health.ConditionType:
			s.health = readHealth(one, field, found)
		default:
			s.conditions = append(s.conditions, readCondition(one, field, found))
		}
		seen[one.GetType()] = true
	}
	if n := len(s.conditions); n > maxConditions {
		found.mayNotBe("status.conditions", fmt.Sprintf("has %d that servers do not set, and may have %d", n, maxConditions))
	}
}

func readHealth(in *metav1alpha1.IstioCondition, field string, found *faults) *health.Report {
	if in.GetStatus() != status.True && in.GetStatus() != status.False {
		found.mayNotBe(field+".status", fmt.Sprintf("is %q: use True or False, and leave the condition out where nothing is known", in.GetStatus()))
	}
	fitText(in, field, found)
	return &health.Report{
		Healthy: in.GetStatus() == status.True, Reason: in.GetReason(), Message: in.GetMessage(),
		Since:  readTime(in.GetLastTransitionTime(), field+".lastTransitionTime", found),
		Probed: readTime(in.GetLastProbeTime(), field+".lastProbeTime", found),
	}
}

// readCondition reads a condition as Kubernetes' conventions have it (metav1.Condition).
func readCondition(in *metav1alpha1.IstioCondition, field string, found *faults) status.ClientCondition {
	if in.GetType() == "" {
		found.mayNotBe(field+".type", "is empty: name the condition")
	}
	switch in.GetStatus() {
	case status.True, status.False, status.Unknown:
	default:
		found.mayNotBe(field+".status", fmt.Sprintf("is %q: use True, False or Unknown", in.GetStatus()))
	}
	fitText(in, field, found)
	if in.GetObservedGeneration() < 0 {
		found.mayNotBe(field+".observedGeneration", "is negative")
	}
	return status.ClientCondition{
		Condition: status.Condition{
			Type: in.GetType(), Status: in.GetStatus(), Reason: in.GetReason(), Message: in.GetMessage(),
			Since: readTime(in.GetLastTransitionTime(), field+".lastTransitionTime", found),
		},
		Probed: readTime(in.GetLastProbeTime(), field+".lastProbeTime", found), Generation: in.GetObservedGeneration(),
	}
}

func fitText(in *metav1alpha1.IstioCondition, field string, found *faults) {
	if n := len(in.GetType()) + len(in.GetReason()) + len(in.GetMessage()); n > maxStatusText {
		found.mayNotBe(field+".message", fmt.Sprintf("the type and the reason have %d bytes, and may have %d", n, maxStatusText))
	}
}

// readTime returns the zero time for an absent one.
func readTime(in *timestamppb.Timestamp, field string, found *faults) time.Time {
	if in == nil {
		return time.Time{}
	}
	if in.GetSeconds() < 0 || in.CheckValid() != nil {
		found.mayNotBe(field, "is no time at which something can have been looked at")
	}
	return in.AsTime()
}
