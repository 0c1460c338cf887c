// Package refusal makes errors for users. The config API passes them to its client unchanged,
// as a metav1.Status; it translates every other error.
package refusal

import (
	"errors"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// New returns an error with a status code of HTTP and a reason of Kubernetes.
func New(code int32, reason metav1.StatusReason, message string) *apierrors.StatusError {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: code, Reason: reason, Message: message,
	}}
}

// BadRequest refuses what cannot be understood.
func BadRequest(message string) *apierrors.StatusError {
	return New(http.StatusBadRequest, metav1.StatusReasonBadRequest, message)
}

// Unauthorized refuses somebody who has not proved who they are.
func Unauthorized(message string) *apierrors.StatusError {
	return New(http.StatusUnauthorized, metav1.StatusReasonUnauthorized, message)
}

// Forbidden refuses somebody who may not do this.
func Forbidden(message string) *apierrors.StatusError {
	return New(http.StatusForbidden, metav1.StatusReasonForbidden, message)
}

// NotFound refuses a request about something that does not exist.
func NotFound(message string) *apierrors.StatusError {
	return New(http.StatusNotFound, metav1.StatusReasonNotFound, message)
}

// Invalid refuses a value that can be read and may not be.
func Invalid(message string) *apierrors.StatusError {
	return New(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, message)
}

// Field is Invalid for one field.
func Field(field, format string, args ...any) *apierrors.StatusError {
	return Invalid(field + ": " + fmt.Sprintf(format, args...))
}

// As returns the refusal that an error is or wraps, and another error through make.
func As(err error, make func(string) *apierrors.StatusError) *apierrors.StatusError {
	var status *apierrors.StatusError
	if errors.As(err, &status) {
		return status
	}
	return make(err.Error())
}

// Unavailable refuses a request that may succeed when it is repeated.
func Unavailable(message string) *apierrors.StatusError {
	err := New(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, message)
	err.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: 1}
	return err
}

// TooMany refuses a client that may try again in some seconds.
func TooMany(message string, seconds int) *apierrors.StatusError {
	err := New(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, message)
	err.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: int32(seconds)}
	return err
}

// CauseStarting is the cause in the answer of a server that is starting. The server has done
// nothing of the request, and soon can.
const CauseStarting metav1.CauseType = "Starting"

// Starting is Unavailable for a server that has just started. The command line tries again.
func Starting(message string) *apierrors.StatusError {
	err := Unavailable(message)
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: CauseStarting, Message: "the server is starting"}}
	return err
}
