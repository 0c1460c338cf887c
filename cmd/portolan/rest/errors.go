package rest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/hashicorp/go-multierror"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/errlist"
	"github.com/portolan-mesh/portolan/storage/refusal"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// A client that is gone gets nothing.
func (s *Server) fail(c *call, err error) {
	status := statusOf(c, err)
	starting := apierrors.HasStatusCause(err, refusal.CauseStarting) // the client asks again
	if status.Code >= http.StatusInternalServerError && !starting && c.r.Context().Err() == nil {
		s.logger.Error("request failed", "method", c.r.Method, "path", c.r.URL.Path, "code", status.Code, "err", err)
	}
	if status.Details != nil && status.Details.RetryAfterSeconds > 0 {
		c.w.Header().Set("Retry-After", fmt.Sprint(status.Details.RetryAfterSeconds))
	}
	writeJSON(c.w, int(status.Code), status)
}

func statusOf(c *call, err error) *metav1.Status {
	var known *apierrors.StatusError
	if !errors.As(err, &known) {
		known = storeStatus(c, err)
	}
	status := known.Status()
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	return &status
}

// storeStatus translates a store's error about the object of the call, into Kubernetes'
// text if there is one.
func storeStatus(c *call, err error) *apierrors.StatusError {
	if c.schema != nil {
		switch resource := c.groupResource(); {
		case errors.Is(err, storage.ErrNotFound):
			return apierrors.NewNotFound(resource, c.name)
		case errors.Is(err, storage.ErrExists):
			return apierrors.NewAlreadyExists(resource, c.name)
		case errors.Is(err, storage.ErrConflict):
			return apierrors.NewConflict(resource, c.name, err)
		}
	}
	status := classify(err)
	if c.schema != nil && c.name != "" {
		details := metav1.StatusDetails{Name: c.name, Group: c.schema.Group, Kind: c.schema.Kind}
		if status.ErrStatus.Details != nil {
			details.RetryAfterSeconds = status.ErrStatus.Details.RetryAfterSeconds
		}
		status.ErrStatus.Details = &details
	}
	return status
}

// ofSource refuses to change an object of a source other than the store.
func ofSource(err error) *apierrors.StatusError {
	return refusal.New(http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed, err.Error())
}

// classify returns the status for a store's error.
func classify(err error) *apierrors.StatusError {
	var many *multierror.Error
	if errors.As(err, &many) {
		many.ErrorFormat = errlist.OneLine
	}
	var source *storage.SourceError
	switch {
	case errors.As(err, &source):
		return ofSource(err)
	case errors.Is(err, storage.ErrNotFound):
		return refusal.NotFound(err.Error())
	case errors.Is(err, storage.ErrExists):
		return refusal.New(http.StatusConflict, metav1.StatusReasonAlreadyExists, err.Error())
	case errors.Is(err, storage.ErrConflict):
		return refusal.New(http.StatusConflict, metav1.StatusReasonConflict, err.Error())
	case errors.Is(err, storage.ErrInvalid):
		return refusal.Invalid(err.Error())
	case errors.Is(err, storage.ErrTooLarge):
		return refusal.New(http.StatusRequestEntityTooLarge, metav1.StatusReasonRequestEntityTooLarge, err.Error())
	case errors.Is(err, storage.ErrReadOnly):
		return refusal.Forbidden(err.Error())
	case errors.Is(err, storage.ErrCompacted):
		return expired(err.Error())
	case errors.Is(err, storage.ErrOutcomeUnknown):
		return refusal.New(http.StatusGatewayTimeout, metav1.StatusReasonTimeout,
			err.Error()+": the write may or may not have been done: read the object again before you repeat it")
	case errors.Is(err, storage.ErrUnavailable):
		return refusal.Unavailable(err.Error())
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return refusal.New(http.StatusGatewayTimeout, metav1.StatusReasonTimeout, "the request ended before it was answered: "+err.Error())
	default:
		return refusal.New(http.StatusInternalServerError, metav1.StatusReasonInternalError, err.Error())
	}
}

func expired(message string) *apierrors.StatusError {
	return refusal.New(http.StatusGone, metav1.StatusReasonExpired, message)
}

func methodNotAllowed(c *call) *apierrors.StatusError {
	message := fmt.Sprintf("method %s is not allowed on %s: it takes %s", c.r.Method, c.r.URL.Path, c.w.Header().Get("Allow"))
	return refusal.New(http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed, message)
}

// tooFarAhead says that the client has seen a version which this server has not;
// client-go understands the cause.
// https://github.com/kubernetes/kubernetes/pull/94316
func tooFarAhead(err error) *apierrors.StatusError {
	out := apierrors.NewTimeoutError("Too large resource version: "+err.Error(), 1)
	out.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge, Message: "Too large resource version"}}
	return out
}

// unknownRevision is tooFarAhead for a version that the store itself has not reached, for
// example after a restore. Waiting does not help, so the answer has no time to retry:
// then client-go lists everything again at once.
func unknownRevision(revision, now int64) error {
	out := tooFarAhead(fmt.Errorf("revision %d is in the future, or of a store that was restored since: the store is at %d", revision, now))
	out.ErrStatus.Details.RetryAfterSeconds = 0
	return out
}

// faults collects the faults of a request, one cause each. The answer is 400 if any of
// them is unreadable text, and 422 if all could be read but not stored.
type faults struct {
	causes     []metav1.StatusCause
	unreadable bool
}

// maxCauses bounds the faults that an answer names.
const maxCauses = 100

// cannotRead adds a fault in the text of a request.
func (f *faults) cannotRead(field, message string) {
	f.unreadable = true
	f.mayNotBe(field, message)
}

// mayNotBe adds a fault in a value.
func (f *faults) mayNotBe(field, message string) {
	switch n := len(f.causes); {
	case n == maxCauses:
		field, message = "", "there are more faults: mend these first"
	case n > maxCauses:
		return
	}
	f.causes = append(f.causes, metav1.StatusCause{Type: metav1.CauseTypeFieldValueInvalid, Field: field, Message: message})
}

// decode adds the faults in an error of config.FromJSON or Decode. say rewrites each.
func (f *faults) decode(err error, say func(object, field, message string) (string, string)) {
	for _, one := range config.Faults(err) {
		fault := &config.DecodeError{Message: one.Error()}
		errors.As(one, &fault)
		add := f.cannotRead
		if fault.Refused {
			add = f.mayNotBe
		}
		add(say(fault.Object, fault.Field, fault.Message))
	}
}

// error returns the faults as an error, nil if there are none.
func (f *faults) error(what string, details metav1.StatusDetails) error {
	if len(f.causes) == 0 {
		return nil
	}
	code, reason := int32(http.StatusUnprocessableEntity), metav1.StatusReasonInvalid
	if f.unreadable {
		code, reason = http.StatusBadRequest, metav1.StatusReasonBadRequest
	}
	details.Causes = f.causes
	err := refusal.New(code, reason, what+": "+sentence(f.causes))
	err.ErrStatus.Details = &details
	return err
}

// sentence returns all causes in one line.
func sentence(causes []metav1.StatusCause) string {
	parts := make([]string, len(causes))
	for i, cause := range causes {
		parts[i] = cause.Message
		if cause.Field != "" {
			parts[i] = cause.Field + ": " + cause.Message
		}
	}
	return strings.Join(parts, "; ")
}

// eachFieldFault calls f with each fault in an error of schema.Validate.
func eachFieldFault(err error, f func(field, message string)) {
	for _, one := range config.Faults(err) {
		var fault *schema.FieldError
		if errors.As(one, &fault) {
			f(fault.Field, fault.Message)
		} else {
			f("", one.Error())
		}
	}
}
