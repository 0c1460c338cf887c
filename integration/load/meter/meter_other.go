//go:build !linux

package meter

import (
	"errors"
	"time"
)

var errUnknown = errors.New("processes are measured on Linux only")

// CPU is the time that the process has run.
func (Process) CPU() (time.Duration, error) { return 0, errUnknown }

// Usage is what the process has used.
func (Process) Usage() (Usage, error) { return Usage{}, errUnknown }

// ResetPeak lets the peak begin anew.
func (Process) ResetPeak() error { return errUnknown }

// Children are the processes that the process has started and that still run.
func (Process) Children() ([]Process, error) { return nil, errUnknown }
