package rest

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"google.golang.org/protobuf/proto"
	analysis "istio.io/api/analysis/v1alpha1"
	metav1alpha1 "istio.io/api/meta/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/health"
	"github.com/portolan-mesh/portolan/storage/refusal"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/storage/schema/ingressstatus"
	"github.com/portolan-mesh/portolan/storage/status"
)

// statusPath is the last part of the path of the status of an object.
const statusPath = "status"

// maxConditions bounds the conditions that clients can set on one object.
const maxConditions = 32

// hasStatus says whether clients can set the status of a kind: conditions of types other than
// those that servers set (status.Types). Of WorkloadEntries, Healthy is one.
func (s *Server) hasStatus(kind *schema.Schema) bool {
	_, keeps := s.store.(storage.StatusKeeper)
	return keeps && kind.Group != "" && conditionsOf(schema.NewStatus(kind.GroupVersionKind)) != nil
}

// conditionsOf returns the conditions of a status that has some.
func conditionsOf(status any) interface {
	proto.Message
	GetConditions() []*metav1alpha1.IstioCondition
	GetValidationMessages() []*analysis.AnalysisMessageBase
} {
	switch status := status.(type) {
	case *networking.ServiceEntryStatus:
		return status
	case *metav1alpha1.IstioStatus:
		return status
	case *ingressstatus.IngressStatus:
		return status
	}
	return nil
}

// statusWrite is a request to set a status.
type statusWrite struct {
	*sentStatus
	dry bool
	// change returns the conditions of clients, of those that are there.
	change func(known []status.ClientCondition) ([]status.ClientCondition, error)
	// partial says that conditions that are not named stay.
	partial bool
}

// setStatus sets the conditions of clients to those in the request. It ignores conditions of
// servers, and the rest of the object in the request.
func (s *Server) setStatus(c *call) error {
	dry, err := dryRun(c.query["dryRun"])
	if err != nil {
		return err
	}
	body, err := s.budget.readJSON(c, "the object in the request body")
	if err != nil {
		return err
	}
	return s.replaceStatus(c, body, dry)
}

func (s *Server) replaceStatus(c *call, body []byte, dry bool) error {
	sent, err := readStatus(c, body)
	if err != nil {
		return err
	}
	return s.writeStatus(c, &statusWrite{sentStatus: sent, dry: dry, change: sent.replacing(c.manager(), wholeSecond())})
}

// wholeSecond is the time of now as clients of Kubernetes keep times.
func wholeSecond() time.Time { return time.Now().Truncate(time.Second) }

// patchStatus is setStatus with the status that a patch makes of the present one. It is tried
// anew if somebody else changes the object meanwhile.
func (s *Server) patchStatus(c *call) error {
	dry, err := dryRun(c.query["dryRun"])
	if err != nil {
		return err
	}
	p, err := s.readPatch(c)
	if err != nil {
		return err
	}
	if p.applies() {
		sent, err := readStatus(c, p.text)
		if err != nil {
			return err
		}
		return s.writeStatus(c, &statusWrite{sentStatus: sent, dry: dry, partial: true, change: sent.applying(p.manager, p.force, wholeSecond())})
	}
	for attempt := 1; ; attempt++ {
		from := s.cache.Snapshot()
		err := s.tryPatchStatus(c, p, dry)
		if !meanwhile(err) || attempt == attempts || !s.catchUp(c, from) {
			return err
		}
	}
}

func (s *Server) tryPatchStatus(c *call, p *patch, dry bool) error {
	snapshot := s.cache.Snapshot()
	live := ofStore(snapshot, c.key())
	if live == nil {
		return s.notOfStore(c)
	}
	text, err := document(withStatus(snapshot, live), c.version)
	if err != nil {
		return err
	}
	if text, err = p.on(text, c.gvk()); err != nil {
		return err
	}
	return s.replaceStatus(c, text, dry)
}

// notOfStore says why an object that the store does not have cannot be changed, nor its status.
func (s *Server) notOfStore(c *call) error {
	if err := s.checkSource(storage.Op{Verb: storage.Update, Key: c.key()}); err != nil {
		return err
	}
	return storage.ErrNotFound
}

func (s *Server) writeStatus(c *call, w *statusWrite) error {
	if err := s.checkSource(storage.Op{Verb: storage.Update, Key: c.key()}); err != nil {
		return err
	}
	if err := s.permit(storage.Op{Verb: storage.Update, Key: c.key()}); err != nil {
		return err
	}
	if w.dry {
		return s.tryStatus(c, w)
	}
	keeper := s.store.(storage.StatusKeeper)
	result, err := keeper.SetConditions(c.r.Context(), storage.StatusUpdate{
		Key: c.key(), UID: w.uid, ResourceVersion: w.resourceVersion, Change: w.change,
	})
	if err != nil {
		return err
	}
	var told *storage.HealthResult
	revision := result.Revision
	if w.setsHealth(c) {
		told, err = s.setHealth(c, w, result)
		if err != nil {
			return err
		}
		if at, err := strconv.ParseInt(told.Revision, 10, 64); err == nil {
			revision = max(revision, at)
		}
	}
	snapshot := s.await(c.r.Context(), strconv.FormatInt(revision, 10))
	if snapshot == nil { // the cache does not show it yet
		snapshot = s.cache.Snapshot()
	}
	object := snapshot.Stored(c.key())
	if object == nil || object.UID != result.UID {
		if object, err = s.store.Get(c.r.Context(), c.schema.GroupVersionKind, c.name, c.namespace); err != nil {
			return err
		}
	}
	if told != nil {
		warn(c.w, statusWarnings(object, w.health, *told))
	}
	out := withStatusOf(snapshot, object, result, told)
	warn(c.w, w.foreign(out))
	return s.writeObject(c, http.StatusOK, out)
}

// setsHealth says whether the request says something of the health of a WorkloadEntry.
func (w *statusWrite) setsHealth(c *call) bool {
	return isKind(c.schema.GroupVersionKind, schema.WorkloadEntry) && (!w.partial || !w.health.Unknown)
}

// setHealth sets the health of a WorkloadEntry whose other conditions are set already.
func (s *Server) setHealth(c *call, w *statusWrite, others *status.Clients) (*storage.HealthResult, error) {
	keeper, ok := s.store.(storage.HealthKeeper)
	if !ok {
		return nil, refusal.NotFound("this server keeps no health")
	}
	result, err := keeper.SetHealth(c.r.Context(), storage.HealthUpdate{
		Key: c.key(), UID: others.UID, ResourceVersion: w.resourceVersion, Report: w.health,
	})
	return &result, err
}

// withStatusOf returns an object with its status after a write, where the snapshot may be of
// before.
func withStatusOf(snapshot *cache.Snapshot, object *config.Config, others *status.Clients, told *storage.HealthResult) *config.Config {
	path := object.Key().Path()
	report := snapshot.Statuses().Value(path)
	if known := report.ClientsOf(object.UID); known == nil || known.Revision < others.Revision {
		if len(others.Conditions) > 0 || known != nil {
			report = report.WithClients(others)
		}
	}
	compared := withComparedStatus(snapshot, object)
	if told != nil && told.Report != nil && (told.Report.Revision == 0 || told.Report.Revision > snapshot.Revision()) {
		compared = withHealth(object, told.Report)
	}
	return withReport(compared, judged(snapshot, object, report))
}

// tryStatus answers a request as writeStatus does, and writes nothing.
func (s *Server) tryStatus(c *call, w *statusWrite) error {
	snapshot := s.cache.Snapshot()
	object := ofStore(snapshot, c.key())
	if object == nil {
		return storage.ErrNotFound
	}
	served := withStatus(snapshot, object)
	if w.uid != "" && w.uid != object.UID {
		return otherUID(object.UID, w.uid)
	}
	others := &status.Clients{UID: object.UID}
	if known := snapshot.Statuses().Value(object.Key().Path()).ClientsOf(object.UID); known != nil {
		others.Conditions, others.Revision = known.Conditions, known.Revision
	}
	if w.resourceVersion != "" && w.resourceVersion != served.ResourceVersion {
		return &storage.ConflictError{Key: object.Key(), Expected: w.resourceVersion, Actual: served.ResourceVersion}
	}
	next, err := w.change(others.Conditions)
	if err != nil {
		return err
	}
	others.Conditions = next
	var told *storage.HealthResult
	if w.setsHealth(c) {
		report := *w.health
		report.UID, report.Namespace, report.Name = object.UID, object.Namespace, object.Name
		if report.Probed.IsZero() {
			report.Probed = time.Now()
		}
		if report.Since.IsZero() {
			report.Since = report.Probed
		}
		told = &storage.HealthResult{Report: &report}
		warn(c.w, statusWarnings(object, w.health, *told))
	}
	others.Revision++ // later than what the snapshot has
	out := withStatusOf(snapshot, object, others, told)
	warn(c.w, w.foreign(out))
	tried := *out
	tried.ResourceVersion = served.ResourceVersion
	return s.writeObject(c, http.StatusOK, &tried)
}

// foreign returns warnings of what only servers set in a request, and what is other than an object has.
func (s *sentStatus) foreign(object *config.Config) (warnings []string) {
	var has []*metav1alpha1.IstioCondition
	if now := conditionsOf(object.Status); now != nil {
		has = now.GetConditions()
	}
	for _, one := range s.reserved {
		if !slices.ContainsFunc(has, func(c *metav1alpha1.IstioCondition) bool {
			return c.GetType() == one.GetType() && c.GetStatus() == one.GetStatus() && c.GetReason() == one.GetReason()
		}) {
			warnings = append(warnings, fmt.Sprintf("status: the condition %s is what servers set: it stays as it is", one.GetType()))
		}
	}
	if now, _ := object.Status.(*ingressstatus.IngressStatus); len(s.addresses) > 0 && !slices.Equal(s.addresses, now.Addresses()) {
		warnings = append(warnings, "status: loadBalancer is what servers set: it stays as it is")
	}
	return warnings
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
