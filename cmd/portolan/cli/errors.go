package cli

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/go-multierror"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest/batch"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/errlist"
)

// NothingDone returns an error which says that nothing was done, and why; nil if there are no
// faults.
func NothingDone(done string, faults *multierror.Error) error {
	if faults.ErrorOrNil() == nil {
		return nil
	}
	faults.ErrorFormat = errlist.Lines
	return fmt.Errorf("nothing was %s: %w", done, faults)
}

// rewritten is an error of the server, in terms of the user's files.
type rewritten struct {
	error
	status error
}

// Unwrap returns the rewritten error and the server's.
func (r rewritten) Unwrap() []error { return []error{r.error, r.status} }

// Refused rewrites the error of a refused batch to name the documents at fault. The batch had
// one operation for each document. It returns other errors unchanged.
func Refused(err error, done string, documents []config.Document) error {
	causes := CausesOf(err)
	if len(causes) == 0 {
		return err
	}
	var faults *multierror.Error
	for _, cause := range oncePerField(causes) {
		i, field, ok := batch.Index(cause.Field)
		if !ok || i >= len(documents) {
			return err
		}
		faults = multierror.Append(faults, located(documents[i], field, cause))
	}
	return rewritten{NothingDone(done, faults), err}
}

// oncePerField returns the causes with those about other managers of one field as one, which names
// all of them. The managers of a field are in the order of their names, and such fields of an object
// too.
func oncePerField(causes []metav1.StatusCause) []metav1.StatusCause {
	managers := map[string][]string{}
	var out []metav1.StatusCause
	for _, cause := range causes {
		before, manager, ok := strings.Cut(cause.Message, managerConflict)
		if !ok || !IsManaged(cause) {
			out = append(out, cause)
			continue
		}
		if managers[cause.Field] == nil {
			cause.Message = before
			out = append(out, cause)
		}
		managers[cause.Field] = append(managers[cause.Field], manager)
	}
	for i := range out {
		if of := managers[out[i].Field]; of != nil && IsManaged(out[i]) {
			out[i].Message += managerConflict + strings.Join(slices.Compact(slices.Sorted(slices.Values(of))), " and ")
		}
	}
	slices.SortStableFunc(out, func(a, b metav1.StatusCause) int {
		i, field, _ := batch.Index(a.Field)
		k, other, _ := batch.Index(b.Field)
		if i != k || !IsManaged(a) || !IsManaged(b) {
			return cmp.Compare(i, k)
		}
		return cmp.Compare(field, other)
	})
	return out
}

// managerConflict comes before the name of a field manager.
const managerConflict = "conflict with "

// IsManaged says whether a cause is that other managers own a field.
func IsManaged(cause metav1.StatusCause) bool {
	return cause.Type == metav1.CauseTypeFieldManagerConflict
}

// located returns the error of one cause, with the place of its object.
func located(d config.Document, field string, cause metav1.StatusCause) error {
	key := d.Config.Key().String()
	fault := d.Fault(strings.TrimPrefix(field, "."), strings.TrimPrefix(cause.Message, key+": "))
	if strings.Contains(fault.Message, key) { // the message names the object already
		fault.Object, fault.Field = "", ""
	}
	if IsA(cause, metav1.StatusReasonConflict) {
		fault.Message += ": see " + sinceThen(d.Config)
	}
	return fault
}

// sinceThen returns the command that shows how an object has changed since the given version.
func sinceThen(object *config.Config) string {
	at := strings.ToLower(object.Kind) + "/" + object.Name
	if object.Namespace != "" {
		at += " -n " + object.Namespace
	}
	if revision, err := strconv.ParseInt(object.ResourceVersion, 10, 64); err == nil && revision > 0 {
		return "portolan diff " + at + " --from " + object.ResourceVersion
	}
	return "portolan history " + at
}

func IsA(cause metav1.StatusCause, reason metav1.StatusReason) bool {
	return cause.Type == metav1.CauseType(reason)
}

func CausesOf(err error) []metav1.StatusCause {
	var status *apierrors.StatusError
	if !errors.As(err, &status) || status.ErrStatus.Details == nil {
		return nil
	}
	return status.ErrStatus.Details.Causes
}
