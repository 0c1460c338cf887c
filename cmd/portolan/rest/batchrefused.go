package rest

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest/batch"
	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/refusal"
	"github.com/portolan-mesh/portolan/xds/verdict/finding"
)

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
