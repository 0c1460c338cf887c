package config

import (
	"errors"

	"github.com/hashicorp/go-multierror"
)

// Faults returns the errors of a *multierror.Error, else err itself; none for nil.
func Faults(err error) []error {
	var many *multierror.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &many):
		return many.Errors
	default:
		return []error{err}
	}
}
