package rest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portolan-mesh/portolan/storage/status"
)

// Conditions of clients are kept by their types: each belongs to the field manager that set it.

// changeConditions makes one list of conditions of another.
type changeConditions = func(known []status.ClientCondition) ([]status.ClientCondition, error)

// replacing returns the change of an update: the sent conditions replace all of clients. Those
// that stay as they are keep their manager.
func (s *sentStatus) replacing(manager string, now time.Time) changeConditions {
	return func(known []status.ClientCondition) ([]status.ClientCondition, error) {
		return s.over(nil, known, manager, now), nil
	}
}

// applying returns the change of a server-side apply: the sent conditions are the manager's, and
// others that it applied before go. Without force, another value for a condition of another
// manager is a conflict.
func (s *sentStatus) applying(manager string, force bool, now time.Time) changeConditions {
	return func(known []status.ClientCondition) ([]status.ClientCondition, error) {
		var conflicts []metav1.StatusCause
		kept := slices.DeleteFunc(slices.Clone(known), func(k status.ClientCondition) bool {
			at := slices.IndexFunc(s.conditions, func(c status.ClientCondition) bool { return c.Type == k.Type })
			if at >= 0 && k.Manager != manager && !says(k, s.conditions[at]) {
				conflicts = append(conflicts, metav1.StatusCause{
					Type: metav1.CauseTypeFieldManagerConflict, Message: fmt.Sprintf("conflict with %q", k.Manager),
					Field: fmt.Sprintf(".status.conditions[type=%q]", k.Type),
				})
			}
			return at < 0 && k.Manager == manager
		})
		if len(conflicts) > 0 && !force {
			return nil, applyConflict(conflicts)
		}
		return s.over(kept, known, manager, now), nil
	}
}

// applyConflict returns the error with which Kubernetes answers an apply.
func applyConflict(conflicts []metav1.StatusCause) error {
	var told []string
	for _, c := range conflicts {
		told = append(told, c.Message+": "+c.Field)
	}
	return apierrors.NewApplyConflict(conflicts, fmt.Sprintf("Apply failed with %d conflict(s): %s", len(conflicts), strings.Join(told, ", ")))
}

// over returns conditions with the sent ones in their places, or behind them. known are those of
// before.
func (s *sentStatus) over(kept, known []status.ClientCondition, manager string, now time.Time) []status.ClientCondition {
	out := slices.Clone(kept)
	if kept == nil { // those of before that are sent again keep their order
		for _, k := range known {
			if slices.ContainsFunc(s.conditions, func(c status.ClientCondition) bool { return c.Type == k.Type }) {
				out = append(out, k)
			}
		}
	}
	for _, c := range s.conditions {
		at := slices.IndexFunc(out, func(k status.ClientCondition) bool { return k.Type == c.Type })
		switch {
		case at < 0:
			c.Manager, c.Since = manager, orElse(c.Since, now)
			out = append(out, c)
		case !says(out[at], c):
			c.Manager = manager
			if c.Since.IsZero() && out[at].Status == c.Status {
				c.Since = out[at].Since
			}
			c.Since = orElse(c.Since, now)
			out[at] = c
		}
	}
	return out
}

// says says whether a condition has what a request says of it. A request that names no time
// leaves it.
func says(known, sent status.ClientCondition) bool {
	return (sent.Since.IsZero() || sameTime(known.Since, sent.Since)) && sameTime(known.Probed, sent.Probed) &&
		known.Status == sent.Status && known.Reason == sent.Reason && known.Message == sent.Message && known.Generation == sent.Generation
}

// sameTime compares a time in whole seconds, as clients of Kubernetes send it, in whole seconds.
func sameTime(known, sent time.Time) bool {
	return known.Equal(sent) || sent.Nanosecond() == 0 && known.Truncate(time.Second).Equal(sent)
}

func orElse(t, otherwise time.Time) time.Time {
	if t.IsZero() {
		return otherwise
	}
	return t
}
