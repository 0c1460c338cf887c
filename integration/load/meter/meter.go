package meter

import "time"

// Process is the pid of a measured process.
type Process int

// Usage is what a process uses at one time.
type Usage struct {
	// CPU is the time that it has run, in user and kernel mode, on all cores together. It does
	// not include work of the network stack on behalf of others.
	CPU time.Duration
	// Resident is its memory in bytes, and Peak the maximum since it began or since ResetPeak.
	Resident, Peak int64
}
