package meter

import "time"

// Process is one that is measured, by its number.
type Process int

// Usage is what a process has used at one time.
type Usage struct {
	// CPU is the time that it has run, in user and kernel mode, on all cores
	// together; what waits in the network stack for others is not in it.
	CPU time.Duration
	// Resident is its memory in bytes, and Peak the most of it since it began or
	// since ResetPeak.
	Resident, Peak int64
}
