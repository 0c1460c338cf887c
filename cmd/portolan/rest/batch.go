package rest

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/hashicorp/go-multierror"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/batch"
	"github.com/portolan-mesh/portolan/discovery/access"
	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/cores"
	"github.com/portolan-mesh/portolan/storage/refusal"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/xds/admin/effect"
	"github.com/portolan-mesh/portolan/xds/verdict/finding"
)

func (s *Server) batches(w http.ResponseWriter, r *http.Request) {
	s.serve(w, r, func(c *call) error {
		c.kind = batch.Kind
		if r.Method != http.MethodPost {
			c.w.Header().Set("Allow", "POST")
			return methodNotAllowed(c)
		}
		c.verb = "create"
		if err := s.authenticate(c); err != nil {
			return err
		}
		return s.apply(c)
	})
}

// apply does all operations of a batch or none.
func (s *Server) apply(c *call) error {
	request, err := s.readBatch(c)
	if err != nil {
		return err
	}
	return s.keeping(request.Operations).applyAs(c, request)
}

func (s *Server) applyAs(c *call, request *request) error {
	trial, err := s.rehearse(c, c.query["dryRun"])
	if err != nil {
		return err
	}
	preview, err := previewOf(c.query, trial)
	if err != nil {
		return err
	}
	if preview == effect.PreviewResources || preview == effect.PreviewBodies {
		if err := s.authorize(c, access.Request{Verb: "get", Group: batch.Group, Version: batch.Version, Resource: "proxyconfig", Path: c.r.URL.Path}); err != nil {
			return err
		}
	}
	b := &batchCall{server: s, call: c, force: request.Force, serverSide: request.ServerSide, places: map[config.Key]int{}}
	c.setMessage(request.Message, &b.faults)
	c.checkManager(&b.faults)
	if err := b.read(request.Operations); err != nil {
		return err
	}
	if err := b.strictRefusal(request.Strict); err != nil {
		return err
	}
	for i, op := range b.ops {
		var learnt bool
		if b.ops[i], learnt = s.asStored(c.r.Context(), op); !learnt {
			b.unlearnt = append(b.unlearnt, i)
		}
	}
	for i, op := range b.ops {
		if len(b.odd[i]) > 0 {
			b.ops[i].KeepSpec = s.keepSpec(op)
		}
	}
	if err := b.ofSources(); err != nil {
		return b.refused(err)
	}
	if err := s.checkRoom(b.ops...); err != nil {
		return err
	}
	if err := b.seal(trial != nil); err != nil {
		return b.refused(err)
	}
	b.before = s.cache.Snapshot()
	revision, results, err := s.batcher(trial).Apply(c.r.Context(), b.ops)
	if err != nil {
		return b.refused(err)
	}
	if trial == nil {
		asServed(s.await(c.r.Context(), revision), results)
	}
	answer := b.result(revision, results)
	if preview != effect.PreviewNothing {
		if err := s.preview(trial, b.ops, preview, &answer); err != nil {
			return err
		}
	}
	writeJSON(c.w, http.StatusOK, answer)
	return nil
}

// ofSources returns an error for each operation on an object that another source
// prevents or that only servers may write.
func (b *batchCall) ofSources() error {
	var found *multierror.Error
	for i, op := range b.ops {
		if err := b.server.mayStore(b.call, op); err != nil {
			found = multierror.Append(found, &storage.OpError{Index: i, Err: err})
		}
	}
	return found.ErrorOrNil()
}

// seal replaces the objects in the operations by their stored form, with secrets sealed.
func (b *batchCall) seal(trial bool) error {
	var found *multierror.Error
	for i, op := range b.ops {
		sealed, err := b.server.sealed(b.call.r.Context(), op, trial)
		if err != nil {
			found = multierror.Append(found, &storage.OpError{Index: i, Err: err})
		}
		b.ops[i] = sealed
	}
	return found.ErrorOrNil()
}

// asServed sets the versions of results to the served versions of their objects, as far
// as the snapshot has them. The snapshot may be nil.
func asServed(snapshot *cache.Snapshot, results []storage.Result) {
	for i, r := range results {
		if object := snapshot.Get(r.Key); object != nil && object.ResourceVersion == r.ResourceVersion {
			results[i].ResourceVersion = withStatus(snapshot, object).ResourceVersion
		}
	}
}

// strictRefusal refuses a strict batch because of its warnings of a severity and worse; it
// returns nil if there are none.
func (b *batchCall) strictRefusal(strict string) error {
	if strict == "" {
		return nil
	}
	limit := slices.Index(finding.Severities, strict)
	var found []string
	for i, w := range b.warnings {
		if b.severity[i] <= limit {
			found = append(found, w)
		}
	}
	if len(found) == 0 {
		return nil
	}
	what := "warnings"
	if strict == finding.Severities[0] {
		what = "errors"
	}
	err := refusal.Invalid("batch refused, nothing was written: it is strict and has " + what + ": " + strings.Join(found, "; "))
	details := metav1.StatusDetails{Group: batch.Group, Kind: batch.Kind}
	for _, w := range found[:min(len(found), maxCauses)] {
		details.Causes = append(details.Causes, metav1.StatusCause{Type: "Warning", Message: w})
	}
	err.ErrStatus.Details = &details
	return err
}

// result returns the answer to a batch that was done.
func (b *batchCall) result(revision string, results []storage.Result) batch.Result {
	answer := batch.Result{
		TypeMeta: metav1.TypeMeta{Kind: batch.ResultKind, APIVersion: batch.APIVersion},
		Revision: revision, Results: make([]batch.Outcome, len(results)), Warnings: b.warnings,
	}
	for i, severity := range b.severity {
		if severity == slices.Index(finding.Severities, "info") {
			answer.Infos = append(answer.Infos, i)
		}
	}
	for i, r := range results {
		answer.Results[i] = batch.Outcome{
			Kind: r.Key.Kind.Kind, Namespace: r.Key.Namespace, Name: r.Key.Name,
			Outcome: string(r.Outcome), ResourceVersion: r.ResourceVersion, Dangling: b.dangling[i],
		}
		if r.Outcome == storage.Deleted {
			answer.Results[i].Note = b.server.replacementAfterDelete(b.before, r.Key)
		}
	}
	return answer
}

type batchCall struct {
	server            *Server
	call              *call
	force, serverSide bool // see batch.Batch

	ops      []storage.Op       // in the order of the request, with the unreadable ones
	unlearnt []int              // those that name a version which this server does not know yet
	places   map[config.Key]int // index of the operation of each object so far
	faults   faults
	taken    *multierror.Error // conflicts with those who have applied fields of the objects
	denied   []metav1.StatusCause
	unjudged error              // why the rights of the caller cannot be checked now
	odd      [][]schema.Warning // the warnings of its schema, by operation
	warnings []string
	severity []int // index of finding.Severities, by warning
	before   *cache.Snapshot
	dangling [][]string // by operation, the objects that refer to the one that it deletes
}

// read turns operations into ops, and reports the faults of all of them. If there are
// none, it collects the warnings of the advisor.
func (b *batchCall) read(operations []batch.Operation) error {
	if err := b.readOperations(operations); err != nil {
		return err
	}
	b.dangling = make([][]string, len(b.ops))
	for i, advice := range b.server.advise(b.call.r.Context(), b.ops) {
		for _, a := range advice {
			if a.Dangling {
				b.dangling[i] = append(b.dangling[i], a.Text)
			}
		}
		for k, w := range allWarnings(b.odd[i], advice) {
			severity := slices.Index(finding.Severities, "warning") // of a schema
			if k -= len(b.odd[i]); k >= 0 {
				severity = slices.Index(finding.Severities, advice[k].Severity)
			}
			b.warnings = append(b.warnings, fmt.Sprintf("%s: %s", b.ops[i].Target(), w))
			b.severity = append(b.severity, severity)
		}
	}
	return nil
}

func (b *batchCall) readOperations(operations []batch.Operation) error {
	b.ops, b.odd = make([]storage.Op, len(operations)), make([][]schema.Warning, len(operations))
	read := make([]reading, len(operations))
	cores.Each(len(operations), func(i int) { read[i] = b.server.readOperation(operations[i]) })
	for i, operation := range operations {
		op, ok := b.operation(i, operation, read[i])
		if !ok {
			continue
		}
		b.ops[i] = op
		if b.permitted(i, op) {
			b.validate(i, op, read[i])
		}
	}
	for i, err := range b.server.granting(b.call, b.ops) {
		switch {
		case apierrors.IsServiceUnavailable(err):
			b.unjudged = err
		case err != nil && len(b.denied) <= maxCauses:
			b.denied = append(b.denied, metav1.StatusCause{Type: "Forbidden", Field: batch.Field(i, ""), Message: fmt.Sprintf("%s: %v", b.ops[i].Target(), err)})
		}
	}
	if b.unjudged != nil {
		const refused = "batch refused, nothing was written: "
		if apierrors.HasStatusCause(b.unjudged, refusal.CauseStarting) {
			return refusal.Starting(refused + b.unjudged.Error())
		}
		return refusal.Unavailable(refused + b.unjudged.Error())
	}
	if err := b.taken.ErrorOrNil(); err != nil && len(b.denied)+len(b.faults.causes) == 0 {
		return b.refused(err)
	}
	if len(b.denied) > 0 {
		err := refusal.Forbidden("batch refused, nothing was written: " + sentence(b.denied))
		err.ErrStatus.Details = &metav1.StatusDetails{Causes: b.denied}
		return err
	}
	return b.faults.error("batch refused, nothing was written", metav1.StatusDetails{Group: batch.Group, Kind: batch.Kind})
}

var verbs = map[batch.Verb]storage.Verb{
	batch.Create: storage.Create, batch.Update: storage.Update, batch.Apply: storage.Put,
	batch.Restore: storage.Restore, batch.Delete: storage.Delete,
}

// operation returns false if the operation has a fault.
func (b *batchCall) operation(i int, in batch.Operation, read reading) (storage.Op, bool) {
	verb, ok := verbs[in.Verb]
	switch {
	case !ok:
		b.faults.cannotRead(batch.Field(i, "verb"), fmt.Sprintf("%q is none: use create, update, apply, restore or delete", in.Verb))
		return storage.Op{}, false
	case verb == storage.Delete:
		return b.removal(i, in)
	case in.APIVersion+in.Kind+in.Namespace+in.Name+in.ResourceVersion != "":
		b.faults.cannotRead(batch.Field(i, ""), fmt.Sprintf("%s takes its object in the field object: leave the others out", in.Verb))
		return storage.Op{}, false
	case len(in.Object) == 0:
		b.faults.cannotRead(batch.Field(i, "object"), fmt.Sprintf("is missing: %s needs one", in.Verb))
		return storage.Op{}, false
	}
	if read.err != nil && b.elsewhere(i, typeOf(in)) {
		return storage.Op{}, false
	}
	if read.err != nil {
		b.faults.decode(read.err, func(object, field, message string) (string, string) {
			if object != "" {
				message = object + ": " + message
			}
			return objectField(i, field), message
		})
		return storage.Op{}, false
	}
	checkManagedFields(read.object, func(field, message string) {
		b.faults.mayNotBe(objectField(i, field), fmt.Sprintf("%s: %s", read.object.Key(), message))
	})
	return b.managed(i, storage.Op{Verb: verb, Config: read.object, Served: true}, in.Object)
}

func objectField(i int, field string) string {
	if field == "" {
		return batch.Field(i, "object")
	}
	return batch.Field(i, "object."+field)
}

// removal reads a delete, which names its object by fields or contains it.
func (b *batchCall) removal(i int, in batch.Operation) (storage.Op, bool) {
	if len(in.Object) > 0 {
		var object metav1.PartialObjectMetadata
		if err := json.Unmarshal(in.Object, &object); err != nil {
			b.faults.cannotRead(batch.Field(i, "object"), err.Error())
			return storage.Op{}, false
		}
		in.APIVersion, in.Kind = object.APIVersion, object.Kind
		in.Namespace, in.Name, in.ResourceVersion = object.Namespace, object.Name, object.ResourceVersion
	}
	kind, err := b.server.schemas.Resolve(in.APIVersion, in.Kind)
	if err != nil && b.elsewhere(i, typeOf(in)) {
		return storage.Op{}, false
	}
	if err != nil {
		b.faults.cannotRead(batch.Field(i, ""), err.Error())
		return storage.Op{}, false
	}
	key := config.Key{Kind: kind.GroupVersionKind, Namespace: in.Namespace, Name: in.Name}
	switch {
	case kind.GroupVersionKind == schema.Namespace:
		b.faults.mayNotBe(batch.Field(i, ""), fmt.Sprintf("%s: goes with all that is in it, and so in no batch: DELETE /api/v1/namespaces/%s, or portolan delete namespace %[2]s", key, in.Name))
		return storage.Op{}, false
	case in.Name == "":
		b.faults.cannotRead(batch.Field(i, "name"), kind.Singular+": is missing: say which one to delete")
		return storage.Op{}, false
	case (in.Namespace == "") != kind.ClusterScoped:
		b.faults.cannotRead(batch.Field(i, "namespace"), fmt.Sprintf("%s: must be set for a kind in namespaces, and for no other", key))
		return storage.Op{}, false
	}
	return storage.Op{Verb: storage.Delete, Key: key, ResourceVersion: in.ResourceVersion, Served: true}, true
}

// permitted says whether the client may do an operation.
func (b *batchCall) permitted(i int, op storage.Op) bool {
	verbs := []string{op.Verb.String()}
	if op.Verb == storage.Put || op.Verb == storage.Restore {
		verbs = []string{"create", "update"}
	}
	if b.call.query.Has("preview") { // a preview shows what is stored
		verbs = append(verbs, "get")
	}
	key := op.Target()
	kind := b.server.schemas.Kind(key.Kind)
	for _, verb := range verbs {
		err := b.server.authorize(b.call, access.Request{
			Verb: verb, Path: b.call.r.URL.Path,
			Group: key.Kind.Group, Version: key.Kind.Version, Resource: kind.Plural, Namespace: key.Namespace, Name: key.Name,
		})
		if err != nil {
			if len(b.denied) > maxCauses {
				return false
			}
			if apierrors.IsServiceUnavailable(err) {
				b.unjudged = err
				return false
			}
			b.denied = append(b.denied, metav1.StatusCause{Type: "Forbidden", Field: batch.Field(i, ""), Message: fmt.Sprintf("%s: %v", key, err)})
			return false
		}
	}
	return true
}

// validate reports the faults of an operation that could be read.
func (b *batchCall) validate(i int, op storage.Op, read reading) {
	key := op.Target()
	if first, ok := b.places[key]; ok {
		b.faults.mayNotBe(batch.Field(i, ""), fmt.Sprintf("%s: is the object of operations[%d] too: name each object once", key, first))
		return
	}
	b.places[key] = i
	if op.Config == nil {
		return
	}
	if op.Verb == storage.Create && op.Config.ResourceVersion != "" {
		b.faults.mayNotBe(batch.Field(i, "object.metadata.resourceVersion"), fmt.Sprintf("%s: must not be set on an object to be created", key))
	}
	if op.Config != read.object { // it is merged with the stored one
		read.warnings, read.faults = b.server.schemas.Kind(key.Kind).Validate(op.Config)
	}
	b.odd[i] = read.warnings
	eachFieldFault(read.faults, func(field, message string) {
		b.faults.mayNotBe(objectField(i, field), fmt.Sprintf("%s: %s", key, message))
	})
}

// refused returns the answer to a batch that the store refuses: each operation at fault
// is a cause, and the gravest one determines the status.
func (b *batchCall) refused(err error) error {
	var causes []metav1.StatusCause
	var worst *apierrors.StatusError
	for _, one := range config.Faults(err) {
		var fault *storage.OpError
		if !errors.As(one, &fault) || fault.Index >= len(b.ops) {
			return classify(one)
		}
		if slices.Contains(b.unlearnt, fault.Index) {
			one = b.server.unseenVersionError(b.call.r.Context(), one)
		}
		var status *apierrors.StatusError
		if !errors.As(one, &status) {
			status = classify(one)
		}
		if worst == nil || rank(status) < rank(worst) {
			worst = status
		}
		if status.ErrStatus.Details != nil && len(status.ErrStatus.Details.Causes) > 0 {
			for _, cause := range status.ErrStatus.Details.Causes {
				cause.Field, cause.Message = objectField(fault.Index, cause.Field), fmt.Sprintf("%s: %s", b.ops[fault.Index].Target(), cause.Message)
				causes = append(causes, cause)
			}
			continue
		}
		field := batch.Field(fault.Index, "")
		if b.ops[fault.Index].Config != nil && errors.Is(one, storage.ErrConflict) {
			field = objectField(fault.Index, "metadata.resourceVersion")
		}
		causes = append(causes, metav1.StatusCause{Type: metav1.CauseType(status.ErrStatus.Reason), Field: field, Message: one.Error()})
	}
	worst.ErrStatus.Message = "batch refused, nothing was written: " + sentence(causes)
	worst.ErrStatus.Details = &metav1.StatusDetails{Group: batch.Group, Kind: batch.Kind, Causes: causes}
	return worst
}

// rank orders the reasons why a store refuses operations, gravest first: a client that
// resolves a conflict resolves the others too.
func rank(err *apierrors.StatusError) int {
	for i, reason := range []metav1.StatusReason{
		metav1.StatusReasonConflict, metav1.StatusReasonAlreadyExists, metav1.StatusReasonNotFound,
		metav1.StatusReasonInvalid, metav1.StatusReasonRequestEntityTooLarge,
	} {
		if err.ErrStatus.Reason == reason {
			return i
		}
	}
	return -1
}
