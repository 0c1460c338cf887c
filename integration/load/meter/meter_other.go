//go:build !linux

package meter

import (
	"errors"
	"time"
)

var errUnknown = errors.New("processes are measured on Linux only")

// CPU returns the time that the process has run.
func (Process) CPU() (time.Duration, error) { return 0, errUnknown }

// Usage returns what the process uses.
func (Process) Usage() (Usage, error) { return Usage{}, errUnknown }

// ResetPeak makes Peak count from now on.
func (Process) ResetPeak() error { return errUnknown }

// Children returns the running processes that the process has started.
func (Process) Children() ([]Process, error) { return nil, errUnknown }
