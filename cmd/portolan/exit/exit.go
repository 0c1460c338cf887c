// Package exit says how a command ends: with which exit code, and whether it tells why.
package exit

import (
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Help is the help text about exit codes.
const Help = `Exit codes of all commands:

   0  done
   1  failure, a problem was found (store status, upgrade check), something is missing
      in what was made (debug bundle), or no (auth can-i, authz check)
   2  differences were found (diff), or a wait was in vain
   3  a wait found no proxy that the change concerns
  64  the command line cannot be understood
  65  the input cannot be used, or the server refuses what it asks for
  69  the server cannot be reached, or its store takes no writes for now
  75  conflict: somebody changed it meanwhile, or it is not ready yet; look again and retry
  77  forbidden, also by a server that may only read
  79  there are errors, or findings of --failure-threshold or worse (analyze)`

// The exit codes (sysexits.h where there is one).
const (
	OK          = 0
	Failure     = 1
	Differences = 2
	Unconcerned = 3
	Usage       = 64
	Data        = 65
	Unreachable = 69
	Conflict    = 75
	Forbidden   = 77
	Findings    = 79
)

// Coder is an error that knows with which code a command ends.
type Coder interface{ ExitCode() int }

type coded struct {
	error
	code  int
	quiet bool
}

func (e *coded) Unwrap() error { return e.error }

// ExitCode implements Coder.
func (e *coded) ExitCode() int { return e.code }

// With returns an error with which a command ends with a code.
func With(code int, err error) error { return &coded{error: err, code: code} }

// Quietly is With for an end that the output has told of, so that no message is needed.
func Quietly(code int, text string) error { return &coded{errors.New(text), code, true} }

// CodeOf returns the code of the first Coder in an error; false if it has none.
func CodeOf(err error) (code int, given bool) {
	var e Coder
	if !errors.As(err, &e) {
		return 0, false
	}
	return e.ExitCode(), true
}

// Is says whether an error was given a code.
func Is(err error, code int) bool {
	is, given := CodeOf(err)
	return given && is == code
}

// IsQuiet says whether an error needs no message.
func IsQuiet(err error) bool {
	var e *coded
	return errors.As(err, &e) && e.quiet
}

// Of returns the code of an error: the one that it was given, else one by what the config API
// answered.
func Of(err error) int {
	if err == nil {
		return OK
	}
	if code, given := CodeOf(err); given {
		return code
	}
	return ofAnswer(err)
}

// ofAnswer returns the code for an answer of the config API.
func ofAnswer(err error) int {
	switch {
	case apierrors.IsServiceUnavailable(err), apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge):
		return Unreachable
	case apierrors.IsConflict(err):
		return Conflict
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		return Forbidden
	case apierrors.IsBadRequest(err), apierrors.IsInvalid(err), apierrors.IsRequestEntityTooLargeError(err), apierrors.IsResourceExpired(err), apierrors.IsMethodNotSupported(err):
		return Data
	}
	return Failure
}
