package rest

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/portolan-mesh/portolan/xds/verdict"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest/batch"
	"github.com/portolan-mesh/portolan/discovery/access"
	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/cores"
	"github.com/portolan-mesh/portolan/storage/refusal"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/xds/verdict/finding"
)

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
			var severity int
			if schemas := len(b.odd[i]); k < schemas {
				severity = int(verdict.Code(b.odd[i][k].Code).Severity())
			} else {
				severity = slices.Index(finding.Severities, advice[k-schemas].Severity)
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
	op := storage.Op{Verb: verb, Config: read.object, Served: true}
	if verb == storage.Restore {
		op.Health = b.restoredHealth(i, read)
	}
	return b.managed(i, op, in.Object)
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
