package rest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/timestamppb"
	metav1alpha1 "istio.io/api/meta/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/health"
	"github.com/portolan-mesh/portolan/storage/refusal"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/storage/status"
)

// statusPath is the last part of the path of the status of an object.
const statusPath = "status"

// maxStatusText bounds the reason and the message of a condition.
const maxStatusText = 32 << 10

// hasStatus says whether clients can set the status of a kind. They can set the
// condition Healthy of WorkloadEntries, and no condition that servers set.
func (s *Server) hasStatus(kind *schema.Schema) bool {
	_, keeps := s.store.(storage.HealthKeeper)
	return keeps && isKind(kind.GroupVersionKind, schema.WorkloadEntry)
}

// setStatus sets the health of a WorkloadEntry to the condition in the request; a
// request without one removes the health. It ignores the rest of the object in the
// request.
func (s *Server) setStatus(c *call) error {
	body, err := s.budget.readJSON(c, "the object in the request body")
	if err != nil {
		return err
	}
	return s.writeStatus(c, body)
}

// patchStatus is setStatus with the status that a patch makes of the present one. It is tried
// anew if somebody else changes the object meanwhile.
func (s *Server) patchStatus(c *call) error {
	p, err := s.readPatch(c)
	if err != nil {
		return err
	}
	for attempt := 1; ; attempt++ {
		from := s.cache.Snapshot()
		err := s.tryPatchStatus(c, p)
		if !meanwhile(err) || attempt == attempts || !s.catchUp(c, from) {
			return err
		}
	}
}

func (s *Server) tryPatchStatus(c *call, p *patch) error {
	snapshot := s.cache.Snapshot()
	live := ofStore(snapshot, c.key())
	if live == nil {
		return storage.ErrNotFound
	}
	text, err := document(live, c.version)
	if err != nil {
		return err
	}
	if p.applies() { // the status has no field that two managers could share
		p = &patch{kind: types.MergePatchType, text: p.text}
	}
	if text, err = p.on(text, c.gvk()); err != nil {
		return err
	}
	return s.writeStatus(c, text)
}

func (s *Server) writeStatus(c *call, body []byte) error {
	keeper, ok := s.store.(storage.HealthKeeper)
	if !ok {
		return refusal.NotFound("this server keeps no status")
	}
	if dry, err := dryRun(c.query["dryRun"]); err != nil || dry {
		if err == nil {
			err = refusal.BadRequest("dryRun is not for the status of an object: leave it out")
		}
		return err
	}
	update, err := readStatus(c, body)
	if err != nil {
		return err
	}
	if err := s.permit(storage.Op{Verb: storage.Update, Key: c.key()}); err != nil {
		return err
	}
	result, err := keeper.SetHealth(c.r.Context(), update)
	if err != nil {
		return err
	}
	snapshot := s.await(c.r.Context(), result.Revision)
	object := snapshot.Get(c.key())
	if object == nil { // the cache does not show it yet
		if object, err = s.store.Get(c.r.Context(), c.schema.GroupVersionKind, c.name, c.namespace); err != nil {
			return err
		}
	}
	warn(c.w, statusWarnings(object, update.Report, result))
	if out := withStatus(snapshot, object); snapshot != nil {
		return s.writeObject(c, http.StatusOK, out)
	}
	return s.writeObject(c, http.StatusOK, withHealth(object, result.Report))
}

// statusWarnings returns why a report has no effect.
func statusWarnings(object *config.Config, sent *health.Report, result storage.HealthResult) (warnings []string) {
	if result.Stale {
		warnings = append(warnings, fmt.Sprintf("status: nothing was changed: the store has a report of %s, which is newer than that of %s",
			result.Report.Probed.Format(time.RFC3339Nano), sent.Probed.Format(time.RFC3339Nano)))
	}
	if !health.Checked(object.Annotations) {
		warnings = append(warnings, fmt.Sprintf("status: %s counts as healthy whatever is reported: it has no annotation %s: \"true\"",
			object.Key(), health.ChecksAnnotation))
	}
	return warnings
}

func readStatus(c *call, body []byte) (storage.HealthUpdate, error) {
	var object struct {
		metav1.PartialObjectMetadata `json:",inline"`
		Status                       json.RawMessage `json:"status"`
	}
	if err := json.Unmarshal(body, &object); err != nil {
		return storage.HealthUpdate{}, refusal.BadRequest(fmt.Sprintf("the object in the request body cannot be read: %v", err))
	}
	var found faults
	fitStatusToPath(c, &object.PartialObjectMetadata, &found)
	update := storage.HealthUpdate{
		Key: c.key(), UID: string(object.UID), ResourceVersion: object.ResourceVersion, Report: readReport(object.Status, &found),
	}
	details := metav1.StatusDetails{Name: c.name, Group: c.schema.Group, Kind: c.schema.Kind}
	return update, found.error("the status of "+c.key().String()+" cannot be set", details)
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

// An absent status is an empty one.
func readReport(text json.RawMessage, found *faults) *health.Report {
	sent := &metav1alpha1.IstioStatus{}
	if len(text) > 0 && string(text) != "null" {
		if err := protojson.Unmarshal(text, sent); err != nil {
			found.cannotRead("status", err.Error())
			return nil
		}
	}
	if len(sent.GetValidationMessages()) > 0 {
		found.mayNotBe("status.validationMessages", "is not kept: leave it out")
	}
	report := &health.Report{Unknown: true}
	for i, condition := range sent.GetConditions() {
		field := fmt.Sprintf("status.conditions[%d]", i)
		switch {
		case status.Reserved(condition.GetType()): // sent back as read
		case condition.GetType() != healthy:
			found.mayNotBe(field+".type", fmt.Sprintf("is %q: only %s can be set", condition.GetType(), healthy))
		case !report.Unknown:
			found.mayNotBe(field+".type", "is "+healthy+" once more: say it once")
		default:
			report = readCondition(condition, field, found)
		}
	}
	return report
}

func readCondition(in *metav1alpha1.IstioCondition, field string, found *faults) *health.Report {
	if in.GetStatus() != "True" && in.GetStatus() != "False" {
		found.mayNotBe(field+".status", fmt.Sprintf("is %q: use True or False, and leave the condition out where nothing is known", in.GetStatus()))
	}
	if n := len(in.GetReason()) + len(in.GetMessage()); n > maxStatusText {
		found.mayNotBe(field+".message", fmt.Sprintf("and the reason have %d bytes, and may have %d", n, maxStatusText))
	}
	return &health.Report{
		Healthy: in.GetStatus() == "True", Reason: in.GetReason(), Message: in.GetMessage(),
		Since:  readTime(in.GetLastTransitionTime(), field+".lastTransitionTime", found),
		Probed: readTime(in.GetLastProbeTime(), field+".lastProbeTime", found),
	}
}

// readTime returns the zero time for an absent one.
func readTime(in *timestamppb.Timestamp, field string, found *faults) time.Time {
	if in == nil {
		return time.Time{}
	}
	if in.GetSeconds() < 0 || in.CheckValid() != nil {
		found.mayNotBe(field, "is no time that a workload can have been looked at")
	}
	return in.AsTime()
}
